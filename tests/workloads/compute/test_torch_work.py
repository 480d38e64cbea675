import json
from dataclasses import asdict

import pytest

from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_config import GptConfig

FIELDS = {
    "config": GptConfig(layers=4, hidden=32, context=16, heads=4, vocabulary=64),
    "stages": 4,
    "stage": 0,
    "pipelines": 2,
    "pipeline": 0,
    "microbatches": 3,
    "recompute": False,
    "precision": "fp32",
    "device": "cpu",
    "seed": 3,
    "learning_rate": 1e-3,
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stages", 5),
        ("stage", 4),
        ("stage", -1),
        ("pipelines", 0),
        ("pipeline", 2),
        ("microbatches", 0),
        ("precision", "fp16"),
        ("device", "tpu"),
        ("seed", -1),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("threads", 0),
    ],
)
def test_an_invalid_value_is_refused_by_field(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: "):
        TorchWork(**{**FIELDS, field: value})


def test_it_goes_through_json() -> None:
    work = TorchWork(**FIELDS, text="some.txt")
    document = json.loads(json.dumps(asdict(work)))
    config = GptConfig(**document.pop("config"))
    assert TorchWork(config=config, **document) == work
