import json
from pathlib import Path

import pytest

from wanbed.workloads.bubbletea.prefill_profile import TimedChunk, fit_chunks
from wanbed.workloads.compute.device_settings import DeviceSettings
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS, InferenceWork
from wanbed.workloads.serving.layer_measurement import MeasurementConfig, main

TINY = INFERENCE_MODELS["llama-tiny"]


def measured(folder: Path, chunk_tokens: int) -> list[TimedChunk]:
    plan = MeasurementConfig(InferenceWork(TINY, 1, DeviceSettings("cpu")), 2, chunk_tokens, str(folder / "result"))
    plan.write(folder / "plan.json")
    assert main([str(folder / "plan.json")]) == 0
    return [TimedChunk(*chunk) for chunk in json.loads((folder / "result").read_text())]


def test_chunks_of_three_sizes_are_timed_first_and_after_others_and_a_profile_fits_them(tmp_path: Path) -> None:
    chunks = measured(tmp_path, 64)
    assert {(chunk.tokens, chunk.prior_tokens) for chunk in chunks} == {
        (size, number * size) for size in (16, 32, 64) for number in range(4)
    }
    assert all(chunk.time_ns > 0 for chunk in chunks)
    assert fit_chunks(chunks, 1, source="here").measured


def test_chunks_of_one_token_are_timed_too(tmp_path: Path) -> None:
    assert {(chunk.tokens, chunk.prior_tokens) for chunk in measured(tmp_path, 1)} == {(1, n) for n in range(4)}


def test_a_plan_that_is_none_is_reported_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text("{}")
    assert main([str(tmp_path / "plan.json")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
