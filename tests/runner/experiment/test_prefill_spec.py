from pathlib import Path
from typing import Any

import pytest

from ground.strict_model import InputError, parse_model
from runner.experiment.prefill_spec import PrefillSpec
from runner.planner.experiment_file import parse_experiment
from tests.support.runner.prefill_documents import experiment, with_prefill


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
    with pytest.raises(InputError) as caught:
        parse_model(PrefillSpec, written, "exp.yaml: prefill")
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_written_document_gives_an_equal_experiment() -> None:
    prompt = {"median": 1000, "spread": 1.5}
    written = with_prefill(trace="gamma", rate="0.25/s", variation=3, prompt=prompt, guard="1ms")
    first = experiment(**written)
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
