import json
from dataclasses import replace
from pathlib import Path

import pytest

from wanbed.ground.errors import InputError
from wanbed.workloads.bubbletea.profile_files import (
    MeasuredChunk,
    MeasuredLayers,
    MeasuredPrompt,
    load_prefill_profile,
    prefill_profile_names,
    read_prefill_profile,
)
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS

ROOT = Path(__file__).resolve().parents[3]
LLAMA_8B = INFERENCE_MODELS["llama-8b"]

MEASURED = {
    "title": "measured here",
    "basis": "measured",
    "device": "a device",
    "precision": "bf16",
    "model": {"layers": 2, "hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "feed_forward": 14336},
    "prompts": [{"tokens": tokens, "time_ns": 2 * (10**9 + 10**7 * tokens)} for tokens in (10, 100, 1000)],
    "source": [{"figures": "all", "origin": "a test"}],
}


def a100_with(**changes: object) -> str:
    document = json.loads((ROOT / "workloads/bubbletea/profiles/a100.json").read_text())
    return json.dumps({**document, **changes})


def measured_with(**changes: object) -> str:
    return json.dumps({**MEASURED, **changes})


def test_the_shipped_profiles_are_known_by_name_and_hold_for_the_large_models() -> None:
    assert prefill_profile_names() == ("a100",)
    for name in ("llama-8b", "llama-70b"):
        profile = load_prefill_profile("a100", INFERENCE_MODELS[name])
        assert not profile.measured
        assert profile.error is None
        assert profile.source.endswith("estimated")


def test_an_estimate_counts_operations_at_the_stated_efficiency_and_one_read_of_the_weights() -> None:
    profile = load_prefill_profile("a100", LLAMA_8B)
    reading_s = 436_224_000 / 2.039e12
    for tokens, prior_tokens in ((1, 0), (1000, 0), (512, 4096)):
        seconds = 32 * reading_s + LLAMA_8B.flops(32, tokens, prior_tokens) / (312e12 * 0.6)
        assert profile.chunk_ns(32, tokens, prior_tokens) == pytest.approx(seconds * 1e9, rel=1e-9, abs=1)


def test_measured_prompts_are_fitted_for_any_number_of_their_layers(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(measured_with())
    profile = load_prefill_profile("own.json", LLAMA_8B, relative_to=tmp_path)
    assert profile.measured
    assert profile.error is not None
    assert profile.error.max < 1e-6
    assert profile.chunk_ns(32, 500, 0) == pytest.approx(32 * (10**9 + 10**7 * 500), rel=1e-6)


def test_a_measured_profile_does_not_hold_for_another_model(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(measured_with())
    with pytest.raises(
        InputError, match=r"'measured here': measured with feed_forward 14336, and llama-8b has 16384: "
    ):
        load_prefill_profile("own.json", replace(LLAMA_8B, feed_forward=16384), relative_to=tmp_path)


def test_a_profile_does_not_hold_for_another_precision() -> None:
    with pytest.raises(InputError, match=r"estimated': in bf16, and llama-tiny has 4 bytes an element: "):
        load_prefill_profile("a100", INFERENCE_MODELS["llama-tiny"])


def test_measured_prompts_that_fit_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(measured_with(prompts=[{"tokens": 5, "time_ns": 7}] * 3))
    with pytest.raises(InputError, match=r"^prefill profile 'measured here': points: prompts of 1 sizes, 3 are wanted"):
        load_prefill_profile("own.json", LLAMA_8B, relative_to=tmp_path)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"^prefill\.profile: there is none of the name 'a10', did you mean 'a100'\?"):
        load_prefill_profile("a10", LLAMA_8B)
    with pytest.raises(InputError, match=r"'zzz', known: a100$"):
        load_prefill_profile("zzz", LLAMA_8B)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (a100_with(effciency=1), r"own\.json: effciency: unknown field, did you mean 'efficiency'\?"),
        (a100_with(efficiency=1.5), r"own\.json: efficiency: "),
        (a100_with(precision="fp8"), r"own\.json: precision: .*'fp8' is none of fp32, bf16"),
        (a100_with(basis="guessed"), r"own\.json: basis: write whether the profile is estimated or measured"),
        (measured_with(prompts=[]), r"own\.json: prompts: "),
        (measured_with(source=[]), r"own\.json: source: "),
        ("[]", r"own\.json: a prefill profile is an object"),
        ("{", r"own\.json: not JSON: "),
        ("[" * 100_000, r"own\.json: not JSON: "),
        (" " * (4 * 2**20 + 1), r"own\.json: larger than 4194304 bytes"),
    ],
    ids=lambda text: text[:20],
)
def test_an_unusable_file_is_refused_in_one_line(tmp_path: Path, text: str, refusal: str) -> None:
    (tmp_path / "own.json").write_text(text)
    with pytest.raises(InputError, match=refusal) as line:
        read_prefill_profile(tmp_path / "own.json")
    assert "\n" not in str(line.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json: No such file or directory, give a readable prefill profile$"):
        load_prefill_profile("none.json", LLAMA_8B, relative_to=tmp_path)


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [("tokens", 1, 10**9), ("prior_tokens", 1, 10**9), ("time_ns", 1, 86_400 * 10**9)],
)
def test_a_measured_chunk_has_at_least_1_of_everything_and_at_most_a_day(field: str, least: int, most: int) -> None:
    chunk = {"tokens": 5, "prior_tokens": 5, "time_ns": 5}
    for value in (least, most):
        assert getattr(MeasuredChunk.model_validate({**chunk, field: value}), field) == value
        if field != "prior_tokens":
            prompt = {"tokens": 5, "time_ns": 5, field: value}
            assert getattr(MeasuredPrompt.model_validate(prompt), field) == value
    for value in (least - 1, most + 1):
        with pytest.raises(ValueError, match=field):
            MeasuredChunk.model_validate({**chunk, field: value})
        with pytest.raises(ValueError, match=field):
            MeasuredPrompt.model_validate({"tokens": 5, "time_ns": 5, field: value})


def test_measured_layers_are_one_or_more_of_each_size() -> None:
    layers = MEASURED["model"]
    assert isinstance(layers, dict)
    for name in layers:
        assert getattr(MeasuredLayers.model_validate({**layers, name: 1}), name) == 1
        with pytest.raises(ValueError, match=name):
            MeasuredLayers.model_validate({**layers, name: 0})
    assert MeasuredLayers.model_validate({**layers, "layers": 65_536, "hidden": 2**20}).hidden == 2**20


def test_chunks_after_others_are_fitted_beside_whole_prompts(tmp_path: Path) -> None:
    # One layer of n tokens after p takes 1000 + 10 n + 2 n (p + n / 2) ns; the file has two layers.
    def time_ns(tokens: int, prior_tokens: int) -> int:
        return 2 * (1000 + 10 * tokens + tokens * (2 * prior_tokens + tokens))

    prompts = [{"tokens": tokens, "time_ns": time_ns(tokens, 0)} for tokens in (10, 100, 1000)]
    chunks = [{"tokens": 64, "prior_tokens": prior, "time_ns": time_ns(64, prior)} for prior in (64, 512)]
    (tmp_path / "own.json").write_text(measured_with(prompts=prompts, chunks=chunks))
    profile = load_prefill_profile("own.json", LLAMA_8B, relative_to=tmp_path)
    assert profile.error is not None
    assert profile.error.points == 5
    assert profile.chunk_ns(1, 300, 200) == pytest.approx(time_ns(300, 200) / 2, rel=1e-6)


def test_a_file_needs_a_title_a_device_and_three_prompts(tmp_path: Path) -> None:
    for changes in ({"title": ""}, {"device": ""}, {"prompts": [{"tokens": 1, "time_ns": 1}] * 2}):
        (tmp_path / "own.json").write_text(measured_with(**changes))
        with pytest.raises(InputError, match=rf"own\.json: {next(iter(changes))}: "):
            read_prefill_profile(tmp_path / "own.json")


def test_a_path_is_told_from_a_name_by_its_slash_or_suffix(tmp_path: Path) -> None:
    (tmp_path / "own").write_text(measured_with())
    (tmp_path / "a100.json").write_text(measured_with(title="mine"))
    for path in (f"{tmp_path}/own", "./own"):
        assert load_prefill_profile(path, LLAMA_8B, relative_to=tmp_path).source == "measured here"
    assert load_prefill_profile("a100.json", LLAMA_8B, relative_to=tmp_path).source == "mine"
    assert load_prefill_profile("a100", LLAMA_8B, relative_to=tmp_path).source.endswith("estimated")
    with pytest.raises(InputError, match="there is none of the name 'own'"):
        load_prefill_profile("own", LLAMA_8B, relative_to=tmp_path)
