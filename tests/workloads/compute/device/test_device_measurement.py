"""A stage whose device is a GPU, played by the CPU, trains as one on the CPU does, and tells what its device did."""

import itertools
from dataclasses import replace

import pytest

from tests.support.workloads.fake_gpu import FakeGpu, FakeGpuDevice
from tests.support.workloads.reference_training import relative_error
from tests.workloads.compute.device.test_torch_device import WORK
from tests.workloads.compute.hand_driven import train_by_hand
from workloads.compute import torch_compute
from workloads.compute.torch_compute import TorchCompute
from workloads.message import Message, MessageKind
from workloads.schedules.action import Action, ActionKind


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[FakeGpu]:
    """The GPUs of the stages made in the test, in the order of their making."""
    made: list[FakeGpu] = []

    def create(name: str) -> FakeGpuDevice:
        made.append(FakeGpu())
        return FakeGpuDevice(made[-1])

    monkeypatch.setattr(torch_compute, "create_device", create)
    return made


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gpu_trains_bit_by_bit_as_the_cpu_that_plays_it(
    precision: str, gpus: list[FakeGpu], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = replace(WORK, precision=precision)
    found = train_by_hand(work, 3)
    assert len(gpus) == 4
    monkeypatch.undo()
    expected = train_by_hand(work, 3)
    assert found.losses == expected.losses
    assert relative_error(found.gradients, expected.gradients) == 0


def test_each_message_is_copied_once_and_gradients_there_and_back(gpus: list[FakeGpu]) -> None:
    iterations = 2
    train_by_hand(WORK, iterations)
    message_bytes = WORK.config.activation_bytes("fp32")
    for gpu, stage in zip(gpus, (0, 1, 0, 1), strict=True):
        messages = [size_bytes for size_bytes in gpu.copied_bytes if size_bytes == message_bytes]
        # An activation one way and a gradient the other, of each microbatch.
        assert len(messages) == 2 * WORK.microbatches * iterations
        gradients = [size_bytes for size_bytes in gpu.copied_bytes if size_bytes != message_bytes]
        assert gradients == [WORK.config.gradient_bytes(stage, WORK.stages, "fp32")] * 2 * iterations


def release_nothing(payload: memoryview) -> None:
    """Payloads of this test belong to nobody."""


def one_iteration(compute: TorchCompute, iteration: int) -> int:
    """Run a last stage by hand; how many spans it had."""
    compute.begin(iteration)
    for microbatch in range(WORK.microbatches):
        payload = memoryview(bytearray(WORK.config.activation_bytes("fp32")))
        compute.arrived(Message(MessageKind.ACTIVATION, microbatch), payload)
        compute.perform(Action(ActionKind.FORWARD, microbatch))
        compute.perform(Action(ActionKind.BACKWARD, microbatch))
        message = Message(MessageKind.GRADIENT, microbatch)
        compute.outgoing(message)
        compute.sent(message)
    compute.update()
    return 2 * WORK.microbatches + 1


def test_every_span_of_an_iteration_is_resolved_and_the_bytes_staged_are_reported(gpus: list[FakeGpu]) -> None:
    compute = TorchCompute(replace(WORK, stage=1, recompute=False, pipelines=1), release_nothing)
    for iteration in range(2):
        count = one_iteration(compute, iteration)
        busy_ns = compute.resolve()
        assert len(busy_ns) == count
        assert all(end_ns <= start_ns for (_, end_ns), (start_ns, _) in itertools.pairwise(busy_ns))
    record = compute.record()
    (gpu,) = gpus
    assert (record.device, record.model) == (gpu.device, gpu.model)
    staged_bytes = 2 * WORK.microbatches * WORK.config.activation_bytes("fp32")
    assert (record.to_host_bytes, record.to_device_bytes) == (staged_bytes, staged_bytes)
    assert record.to_host_ns > 0
    assert record.to_device_ns > 0
    assert record.check_iteration is None


def test_the_profiler_sees_no_more_than_the_spans_of_the_iteration_it_watched() -> None:
    compute = TorchCompute(replace(WORK, stage=1, recompute=False, pipelines=1, check_iteration=1), release_nothing)
    for iteration in range(3):
        one_iteration(compute, iteration)
        compute.resolve()
    record = compute.record()
    assert (record.device, record.check_iteration) == ("cpu", 1)
    assert 0 < record.check_profiler_ns <= record.check_spans_ns
    assert (record.to_host_bytes, record.to_device_bytes) == (0, 0)
