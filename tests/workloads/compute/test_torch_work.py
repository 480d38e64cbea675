import json
from dataclasses import asdict

import pytest

from tests.support.workloads.changed import changed
from wanbed.ground.dataclass_json import from_document
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.learning_config import LearningConfig

WORK = TorchWork(
    ComputedStage(stages=4, stage=0, pipelines=2, pipeline=0, microbatches=3),
    LearningConfig(GptConfig(layers=4, hidden=32, context=16, heads=4, vocabulary=64), 1e-3, "fp32", seed=3),
    TrainingDevice("cpu"),
)


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
        ("seed", -1),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("name", "gpu"),
        ("threads", 0),
        ("check_iteration", -1),
    ],
)
def test_an_invalid_value_is_refused_by_field(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: "):
        changed(WORK, **{field: value})


def test_it_goes_through_json() -> None:
    work = changed(WORK, text="some.txt")
    assert from_document(TorchWork, json.loads(json.dumps(asdict(work)))) == work
