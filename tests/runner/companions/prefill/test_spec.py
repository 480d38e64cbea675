from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.prefill_documents import experiment, with_prefill
from tests.support.runner.taken_values import taken, takes_from_to, words_of_refusal
from wanbed.ground.errors import InputError
from wanbed.runner.companions.prefill.spec import PrefillSpec, TokensSpec
from wanbed.runner.planner.experiment_file import parse_experiment


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ({}, "rate: poisson arrivals need one, write it like 4/s"),
        ({"rate": 4}, "rate: 4 is no rate of arrivals: write it like 4/s or 0.5/s"),
        ({"rate": "0/s"}, "rate: '0/s' is no rate of arrivals"),
        ({"rate": "٣/s"}, "rate: '٣/s' is no rate of arrivals"),
        ({"rate": "4/s", "raet": 1}, "raet: unknown field, did you mean 'rate'?"),
        (
            {"rate": "4/s", "model": "llama-8B"},
            "model: there is no inference model 'llama-8B', did you mean 'llama-8b'?",
        ),
        ({"rate": "4/s", "depth": 3}, "depth: 3 is no depth: a request goes through 1, 2, 4 or 8 GPUs"),
        ({"rate": "4/s", "prompt": 0}, "prompt: 0 is no length in tokens: give a whole number, or {median: 1024"),
        ({"rate": "4/s", "slo": "0s"}, "slo: 0 is too little"),
        ({"rate": "4/s", "slo": 10}, "slo: 10 has no unit"),
        ({"rate": "4/s", "variation": 2}, "variation: only gamma has one"),
        ({"trace": "gamma", "rate": "4/s", "variation": 1000}, "variation: 1000 is no coefficient of variation"),
        ({"trace": "a.csv", "prompt": 100}, "prompt: the file has lengths of its own: leave prompt out"),
        ({"rate": "4/s", "skip_bad_lines": True}, "skip_bad_lines: only a file has lines"),
        ({"rate": "4/s", "training_memory": "90GiB"}, "training_memory: it is more than the memory that a GPU has"),
    ],
)
def test_a_mistake_is_reported_in_one_line_with_its_remedy(written: dict[str, Any], text: str) -> None:
    assert text in words_of_refusal(PrefillSpec, **written)


def test_written_document_gives_an_equal_experiment() -> None:
    prompt = {"median": 1000, "spread": 1.5}
    first = experiment(**with_prefill(trace="gamma", rate="0.25/s", variation=3, prompt=prompt, guard="1ms"))
    again = parse_experiment(first.document(), "exp.yaml", Path())
    assert again.spec == first.spec
    assert again.config_hash == first.config_hash
    assert first.document()["prefill"]["rate"] == "0.25/s"
    assert first.document()["prefill"]["prompt"] == prompt


def test_a_variant_that_prefills_needs_the_section_prefill() -> None:
    variants = [{"name": "any", "schedule": "gpipe", "prefill": "greedy"}]
    with pytest.raises(InputError, match=r"variants\.0\.prefill: there is no section prefill: give one"):
        experiment(prefill=None, variants=variants)


def test_a_rate_can_be_swept() -> None:
    points = experiment(sweep={"prefill.rate": ["4/s", "8/s"]}).points()
    rates = [point.variants[0].service.source.rate_per_s for point in points if point.variants[0].service]
    assert rates == [4.0, 8.0]


def test_what_is_left_out_is_as_the_page_of_the_experiment_file_says() -> None:
    spec = PrefillSpec.model_validate({"rate": "4/s"})
    assert (spec.trace, spec.variation, spec.prompt, spec.output) == ("poisson", None, None, None)
    assert (spec.model, spec.profile, spec.depth, spec.chunk) == ("llama-8b", "a100", 2, 512)
    assert (spec.slo, spec.guard, spec.warmup) == (10 * 10**9, 500 * 10**3, 6)
    assert (spec.memory, spec.training_memory, spec.kv, spec.activation) == (80 * 2**30, 30 * 2**30, None, None)
    assert (spec.skip_bad_lines, spec.columns) == (False, None)
    assert TokensSpec.model_validate({"median": 8}).spread == 1.0


def test_numbers_are_taken_from_end_to_end_of_their_range() -> None:
    assert takes_from_to(PrefillSpec, "chunk", 1, 1_000_000, rate="4/s")
    assert takes_from_to(PrefillSpec, "warmup", 0, 10_000, rate="4/s")
    assert takes_from_to(TokensSpec, "median", 1, 1_000_000)
    assert taken(TokensSpec, "spread", 1, 100, median=8) == [1.0, 100.0]
    for written in (0.99, 100.1, True, "2"):
        assert "is no spread: give a number from 1 to 100" in words_of_refusal(TokensSpec, median=8, spread=written)
    assert taken(PrefillSpec, "variation", 0.01, 100, trace="gamma", rate="4/s") == [0.01, 100.0]
    assert taken(PrefillSpec, "depth", 1, 2, 4, 8, rate="4/s") == [1, 2, 4, 8]
    for field in ("prompt", "output"):
        assert taken(PrefillSpec, field, 1, 1_000_000, rate="4/s") == [1, 1_000_000]
        for tokens in (0, 1_000_001, True, 1.0):
            assert f"{field}: " in words_of_refusal(PrefillSpec, rate="4/s", **{field: tokens})


def test_a_rate_is_above_zero_up_to_a_million_a_second() -> None:
    assert taken(PrefillSpec, "rate", "0.000001/s", " 2.5 / s ", "1000000/s") == [1e-6, 2.5, 1e6]
    for written in ("0/s", "0.0/s", "1000000.1/s", "4", "-1/s", "4/s/s"):
        assert "is no rate of arrivals" in words_of_refusal(PrefillSpec, rate=written)


@pytest.mark.parametrize("rate", ["30/s", "100/s", "0.5/s", "0.000001/s", "1000000/s"])
def test_a_rate_is_written_as_it_was_read(rate: str) -> None:
    assert PrefillSpec.model_validate({"rate": rate}).model_dump(mode="json")["rate"] == rate


def test_what_a_token_takes_on_the_network_is_from_1_byte_to_1_gib() -> None:
    for field in ("kv", "activation"):
        assert taken(PrefillSpec, field, "1B", "1GiB", rate="4/s") == [1, 2**30]
        for written in ("0B", "1073741825B"):
            assert "is not from 1B to 1GiB a token" in words_of_refusal(PrefillSpec, rate="4/s", **{field: written})


def test_a_prompt_has_ten_thousand_chunks_at_most() -> None:
    assert taken(PrefillSpec, "prompt", 10_000, {"median": 10_000}, rate="4/s", chunk=1)
    for prompt in (10_001, {"median": 10_001}):
        words = words_of_refusal(PrefillSpec, rate="4/s", chunk=1, prompt=prompt)
        assert "chunk: a prompt of 10001 tokens is more than 10000 chunks of 1: give larger ones" in words


def test_training_may_take_all_of_a_gpus_memory_and_no_more() -> None:
    assert taken(PrefillSpec, "training_memory", "8GiB", rate="4/s", memory="8GiB") == [2**33]
    assert "training_memory: " in words_of_refusal(
        PrefillSpec, rate="4/s", memory="8GiB", training_memory="8589934593B"
    )


def test_a_file_has_arrivals_and_lengths_of_its_own_and_may_have_columns_and_bad_lines() -> None:
    columns = {"arrival": "a", "prompt": "p", "output": "o", "unit": "ms"}
    file = PrefillSpec.model_validate({"trace": "a.csv", "columns": columns, "skip_bad_lines": True})
    assert (file.drawn, file.rate, file.skip_bad_lines) == (False, None, True)
    assert file.model_dump(mode="json")["columns"] == columns
    assert "output: the file has lengths" in words_of_refusal(PrefillSpec, trace="a.csv", output=1)
    assert "variation: only gamma has one" in words_of_refusal(PrefillSpec, trace="a.csv", variation=1)
    for trace in ("poisson", "gamma"):
        drawn = PrefillSpec.model_validate({"trace": trace, "rate": "4/s"})
        assert drawn.drawn
        assert "columns" not in drawn.model_dump(mode="json")
        assert "rate: " in words_of_refusal(PrefillSpec, trace=trace)
        assert "columns: only a file" in words_of_refusal(PrefillSpec, trace=trace, rate="4/s", columns=columns)
