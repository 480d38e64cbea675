"""The buffers that torch's schedule receives into."""

from types import SimpleNamespace

import torch

from tests.support.workloads.hostile_gpu.gpu import HostileGpu
from wanbed.workloads.baselines.pipeline_baseline import TimedStage


def stage(gpu: HostileGpu | None) -> TimedStage:
    made = TimedStage.__new__(TimedStage)
    made._runtime, made._pinned = gpu, set()
    return made


def test_a_gpu_receives_into_pinned_memory_that_is_made_once() -> None:
    gpu, buffer = HostileGpu(), torch.zeros(4, 8, dtype=torch.bfloat16, requires_grad=True)
    receives, before = [SimpleNamespace(tensor=buffer)], buffer.data_ptr()
    made = stage(gpu)
    assert made._into_pinned(receives) is receives  # type: ignore[arg-type,comparison-overlap]
    pinned = buffer.data_ptr()
    made._into_pinned(receives)  # type: ignore[arg-type]
    assert gpu.waits == ["pinned"]
    assert before != pinned == buffer.data_ptr()
    assert (buffer.shape, buffer.dtype, buffer.requires_grad, buffer.is_leaf) == ((4, 8), torch.bfloat16, True, True)


def test_the_cpu_receives_into_torchs_own_buffers() -> None:
    buffer = torch.zeros(4)
    before = buffer.data_ptr()
    stage(None)._into_pinned([SimpleNamespace(tensor=buffer)])  # type: ignore[list-item]
    assert buffer.data_ptr() == before
