from dataclasses import replace
from pathlib import Path

import pytest

from wanbed.ground.dataclass_json import read_config, write_config
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS
from wanbed.workloads.inference.inference_work import InferenceWork

TINY = INFERENCE_MODELS["llama-tiny"]
WORK = InferenceWork(TINY, 3, "cpu", 2)


def test_it_goes_through_a_file(tmp_path: Path) -> None:
    write_config(WORK, tmp_path / "work.json")
    assert read_config(InferenceWork, tmp_path / "work.json") == WORK


@pytest.mark.parametrize(("name", "precision"), [("llama-tiny", "fp32"), ("llama-8b", "bf16")])
def test_the_precision_is_what_the_model_counts_bytes_of(name: str, precision: str) -> None:
    assert replace(WORK, model=INFERENCE_MODELS[name]).precision == precision


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"model": replace(TINY, bytes_per_element=8)}, "model: torch has no precision of 8 bytes"),
        ({"seed": -1}, "seed: -1 is below 0"),
        ({"threads": 0}, "threads: 0 is below 1"),
        ({"device": "gpu"}, "device: 'gpu' is none of auto, cpu, cuda"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_field(changes: dict[str, object], refusal: str) -> None:
    with pytest.raises(ValueError, match=f"^{refusal}"):
        replace(WORK, **changes)  # type: ignore[arg-type]
