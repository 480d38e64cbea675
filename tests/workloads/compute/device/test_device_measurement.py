"""What a stage tells of its device, a GPU that the CPU plays."""

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.workloads.changed import changed
from tests.support.workloads.hostile_gpu.gpu import HostileGpu, hostile_device
from tests.support.workloads.hostile_gpu.on_hostile_gpu import on_hostile_gpu
from tests.workloads.compute.device.test_torch_device import WORK
from tests.workloads.compute.hand_driven import train_by_hand
from wanbed.workloads.compute.device.device_measurement import (
    EventTimer,
    HostTimer,
    ProfiledEvent,
    ProfilerCheck,
    create_timer,
    profiled_busy_ns,
)
from wanbed.workloads.compute.device.torch_device import CpuDevice
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind


def test_operators_count_once_and_only_within_spans() -> None:
    events = [
        ProfiledEvent("wanbed forward", 100, 200, is_mark=True),
        ProfiledEvent("aten::linear", 110, 150),
        ProfiledEvent("aten::addmm", 120, 140),
        ProfiledEvent("aten::gelu", 190, 230),
        ProfiledEvent("aten::zero_", 300, 400),
        ProfiledEvent("somebody's own", 150, 190, is_mark=True),
    ]
    assert profiled_busy_ns(events, on_device=False) == 40 + 10


def test_kernels_count_but_for_copies_and_communication() -> None:
    events = [
        ProfiledEvent("wanbed forward", 0, 1000, on_device=True, is_mark=True),
        ProfiledEvent("aten::mm", 0, 1000),
        ProfiledEvent("sm90_gemm", 100, 200, on_device=True),
        ProfiledEvent("elementwise", 150, 260, on_device=True),
        ProfiledEvent("Memcpy DtoH (Device -> Pinned)", 300, 400, on_device=True),
        ProfiledEvent("ncclDevKernel_AllReduce_Sum_bf16", 500, 900, on_device=True),
    ]
    assert profiled_busy_ns(events, on_device=True) == 160


def test_kernels_of_prefill_in_a_stream_of_its_own_do_not_count() -> None:
    events = [
        ProfiledEvent("wanbed forward", 0, 1000, is_mark=True, stream=1),
        ProfiledEvent("wanbed forward", 100, 300, on_device=True, is_mark=True, stream=7),
        ProfiledEvent("sm90_gemm", 100, 200, on_device=True, stream=7),
        ProfiledEvent("flash_fwd_kernel", 250, 900, on_device=True, stream=13),
        ProfiledEvent("somebody's own", 250, 900, on_device=True, is_mark=True, stream=13),
        ProfiledEvent("flash_bwd_kernel", 400, 450, on_device=True, stream=7),
    ]
    assert profiled_busy_ns(events, on_device=True) == 150


moments = st.integers(0, 60)

intervals = st.lists(st.tuples(moments, moments).map(sorted), max_size=8)


@given(intervals, intervals)
def test_busy_is_every_nanosecond_of_an_operator_within_a_span(
    operators: list[list[int]], spans: list[list[int]]
) -> None:
    events = [ProfiledEvent("aten::mm", *each) for each in operators]
    events += [ProfiledEvent("wanbed backward", *each, is_mark=True) for each in spans]
    inside = {
        moment
        for moment in range(60)
        if any(start <= moment < end for start, end in operators) and any(a <= moment < b for a, b in spans)
    }
    assert profiled_busy_ns(events, on_device=False) == len(inside)


def test_the_profiler_sees_what_torch_computes_within_a_mark() -> None:
    check = ProfilerCheck(on_device=False)
    check.begin()
    matrix = torch.ones(256, 256)
    with check.mark("forward"):
        for _ in range(20):
            matrix = matrix @ matrix
    inside_ns = check.end()
    assert inside_ns > 0

    check = ProfilerCheck(on_device=False)
    check.begin()
    torch.ones(256, 256) @ torch.ones(256, 256)
    assert check.end() == 0


@pytest.mark.parametrize("on_device", [False, True])
def test_nothing_is_busy_where_nothing_was_seen(on_device: bool) -> None:
    assert profiled_busy_ns([], on_device=on_device) == 0


MILLISECOND_NS = 1_000_000


class CountingGpu(HostileGpu):
    """A GPU that counts the events it has made."""

    events = 0

    def event(self):  # type: ignore[no-untyped-def]
        self.events += 1
        return super().event()


@pytest.mark.parametrize("speed", [1.0, 1 + 2e-5, 1 - 2e-5])
def test_a_span_is_as_long_as_the_gpu_says_and_lies_where_the_host_saw_it(speed: float) -> None:
    gpu = HostileGpu(speed=speed)
    timer = EventTimer(gpu, gpu.host_clock_ns)
    began_ns, seen = [], []
    for duration_ns in (3 * MILLISECOND_NS, 7 * MILLISECOND_NS):
        gpu.now_ns += 50 * MILLISECOND_NS
        began_ns.append(gpu.now_ns)
        seen.append(timer.timed(lambda duration_ns=duration_ns: gpu.keep_busy(duration_ns)))  # type: ignore[misc]
    resolved = timer.resolve()
    for (start_ns, end_ns), began, (low_ns, high_ns), duration_ns in zip(
        resolved, began_ns, seen, (3 * MILLISECOND_NS, 7 * MILLISECOND_NS), strict=True
    ):
        assert end_ns - start_ns == pytest.approx(duration_ns, rel=1e-4)
        assert start_ns == pytest.approx(began + 100, abs=timer.clock_error_ns + 2)
        assert low_ns <= start_ns <= end_ns <= high_ns


def test_no_span_includes_the_delay_until_the_host_sees_the_end() -> None:
    gpu = HostileGpu()
    gpu.wake_up_ns = 20 * MILLISECOND_NS
    timer = EventTimer(gpu, gpu.host_clock_ns)
    start_ns, end_ns = timer.timed(lambda: gpu.keep_busy(MILLISECOND_NS))
    assert end_ns - start_ns > 20 * MILLISECOND_NS
    ((start_ns, end_ns),) = timer.resolve()
    assert end_ns - start_ns == pytest.approx(MILLISECOND_NS, abs=2 * timer.clock_error_ns + 2)


def test_each_iteration_resolves_its_own_spans_with_the_same_events() -> None:
    gpu = CountingGpu()
    timer = EventTimer(gpu, gpu.host_clock_ns)
    made = []
    for _ in range(4):
        for _ in range(5):
            timer.timed(lambda: gpu.keep_busy(MILLISECOND_NS))
        assert len(timer.resolve()) == 5
        made.append(gpu.events)
    assert made[1] == made[-1]
    assert timer.resolve() == []


def test_the_clock_is_off_by_no_more_than_the_shortest_look_at_it() -> None:
    gpu = HostileGpu()
    timer = EventTimer(gpu, gpu.host_clock_ns)
    timer.resolve()
    assert 0 < timer.clock_error_ns <= 100


def test_the_cpu_times_from_the_call_to_the_return() -> None:
    timer = create_timer(CpuDevice())
    assert isinstance(timer, HostTimer)
    intervals = [timer.timed(lambda: None) for _ in range(3)]
    assert timer.resolve() == intervals
    assert timer.resolve() == []
    assert timer.clock_error_ns == 0


def test_a_gpu_is_timed_by_events() -> None:
    assert isinstance(create_timer(hostile_device(HostileGpu())), EventTimer)


@pytest.fixture
def gpu() -> Iterator[HostileGpu]:
    with on_hostile_gpu() as gpu:
        yield gpu


def test_each_message_is_copied_once_and_gradients_there_and_back(gpu: HostileGpu) -> None:
    iterations = 2
    train_by_hand(WORK, iterations)
    copied = Counter(gpu.copied_bytes)
    # An activation one way and a gradient the other, of each microbatch, each out of one stage and into another.
    model, computed = WORK.learning.model, WORK.computed
    messages = 2 * 2 * computed.pipelines * computed.microbatches * iterations
    assert copied.pop(model.activation_bytes("fp32")) == messages
    assert copied == Counter(
        {
            model.gradient_bytes(stage, computed.stages, "fp32"): 2 * computed.pipelines * iterations
            for stage in range(2)
        }
    )


def release_nothing(payload: memoryview) -> None:
    """Payloads of this test belong to nobody."""


def one_iteration(compute: TorchCompute, iteration: int) -> int:
    """Run a last stage by hand; how many spans it had."""
    compute.begin(iteration)
    for microbatch in range(WORK.computed.microbatches):
        payload = memoryview(bytearray(WORK.learning.model.activation_bytes("fp32")))
        compute.arrived(Message(MessageKind.ACTIVATION, microbatch), payload)
        compute.perform(Action(ActionKind.FORWARD, microbatch))
        compute.perform(Action(ActionKind.BACKWARD, microbatch))
        message = Message(MessageKind.GRADIENT, microbatch)
        compute.outgoing(message)
        compute.sent(message)
    compute.update()
    return 2 * WORK.computed.microbatches + 1


def test_every_span_of_an_iteration_is_resolved_and_the_bytes_staged_are_reported(gpu: HostileGpu) -> None:
    compute = TorchCompute(changed(WORK, stage=1, recompute=False, pipelines=1), release_nothing)
    for iteration in range(2):
        count = one_iteration(compute, iteration)
        busy_ns = compute.resolve()
        assert len(busy_ns) == count
        assert all(end_ns <= start_ns for (_, end_ns), (start_ns, _) in itertools.pairwise(busy_ns))
    record = compute.record()
    assert (record.device, record.model) == (gpu.device, gpu.model)
    staged_bytes = 2 * WORK.computed.microbatches * WORK.learning.model.activation_bytes("fp32")
    assert (record.to_host_bytes, record.to_device_bytes) == (staged_bytes, staged_bytes)
    assert record.to_host_ns > 0
    assert record.to_device_ns > 0
    assert record.check_iteration is None


def test_the_profiler_sees_no_more_than_the_spans_of_the_iteration_it_watched() -> None:
    compute = TorchCompute(changed(WORK, stage=1, recompute=False, pipelines=1, check_iteration=1), release_nothing)
    for iteration in range(3):
        one_iteration(compute, iteration)
        compute.resolve()
    record = compute.record()
    assert (record.device, record.check_iteration) == ("cpu", 1)
    assert 0 < record.check_profiler_ns <= record.check_spans_ns
    assert (record.to_host_bytes, record.to_device_bytes) == (0, 0)
