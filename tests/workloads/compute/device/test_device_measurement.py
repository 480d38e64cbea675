"""What a stage tells of its device, a GPU that the CPU plays."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.workloads.hostile_gpu.gpu import HostileGpu
from tests.support.workloads.hostile_gpu.on_hostile_gpu import on_hostile_gpu
from tests.workloads.compute.device.test_torch_device import WORK
from tests.workloads.compute.hand_driven import train_by_hand
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind


@pytest.fixture
def gpu() -> Iterator[HostileGpu]:
    with on_hostile_gpu() as gpu:
        yield gpu


def test_each_message_is_copied_once_and_gradients_there_and_back(gpu: HostileGpu) -> None:
    iterations = 2
    train_by_hand(WORK, iterations)
    copied = Counter(gpu.copied_bytes)
    # An activation one way and a gradient the other, of each microbatch, each out of one stage and into another.
    messages = 2 * 2 * WORK.pipelines * WORK.microbatches * iterations
    assert copied.pop(WORK.config.activation_bytes("fp32")) == messages
    assert copied == Counter(
        {WORK.config.gradient_bytes(stage, WORK.stages, "fp32"): 2 * WORK.pipelines * iterations for stage in range(2)}
    )


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


def test_every_span_of_an_iteration_is_resolved_and_the_bytes_staged_are_reported(gpu: HostileGpu) -> None:
    compute = TorchCompute(replace(WORK, stage=1, recompute=False, pipelines=1), release_nothing)
    for iteration in range(2):
        count = one_iteration(compute, iteration)
        busy_ns = compute.resolve()
        assert len(busy_ns) == count
        assert all(end_ns <= start_ns for (_, end_ns), (start_ns, _) in itertools.pairwise(busy_ns))
    record = compute.record()
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
