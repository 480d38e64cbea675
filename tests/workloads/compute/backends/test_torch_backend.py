from dataclasses import replace

import pytest

from wanbed.workloads.compute.backends import torch_backend
from wanbed.workloads.compute.backends.backend import ComputeConfig
from wanbed.workloads.compute.backends.torch_backend import TorchBackend, torch_work
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.compute.replay import ReplayCosts, ReplayDurations
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.schedules.action import ActionKind

MODEL = GptConfig(layers=4, hidden=32, context=16, heads=4, vocabulary=64)
CONFIG = ComputeConfig(
    backend="wanbed.workloads.compute.backends.torch_backend:TorchBackend",
    costs=ReplayCosts(ReplayDurations(1, 2)),
    computed=ComputedStage(stages=4, stage=1, pipelines=2, pipeline=1, microbatches=3),
    learning=LearningConfig(MODEL, 0.1, "bf16", seed=7, text="some.txt"),
    device=TrainingDevice(check_iteration=0),
)
WORK = TorchWork(
    ComputedStage(stages=4, stage=1, pipelines=2, pipeline=1, microbatches=3),
    LearningConfig(MODEL, 0.1, "bf16", seed=7, text="some.txt"),
    TrainingDevice("auto", check_iteration=0),
)


def test_torch_takes_what_the_config_says_and_has_defaults_for_the_device() -> None:
    assert torch_work(CONFIG, (ActionKind.FORWARD, ActionKind.BACKWARD)) == WORK
    chosen = TrainingDevice("cuda", 2, check_iteration=0)
    work = torch_work(replace(CONFIG, device=chosen), (ActionKind.FORWARD, ActionKind.BACKWARD))
    assert work == replace(WORK, device=chosen)


def test_torch_recomputes_and_splits_where_the_schedule_does() -> None:
    split = (ActionKind.FORWARD, ActionKind.RECOMPUTE, ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT)
    assert torch_work(CONFIG, split) == replace(WORK, recompute=True, split_backward=True)


def test_torch_needs_a_model() -> None:
    with pytest.raises(ValueError, match=r"^learning: None, and torch needs a model to train$"):
        torch_work(replace(CONFIG, learning=None), ())


def test_a_machine_without_torch_is_reported_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TorchBackend().missing() is None
    monkeypatch.setattr(torch_backend, "find_spec", lambda _: None)
    assert "pip install 'wanbed[torch]'" in str(TorchBackend().missing())
