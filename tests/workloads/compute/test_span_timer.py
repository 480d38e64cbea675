import pytest

from tests.support.workloads.hostile_gpu.gpu import HostileGpu, hostile_device
from wanbed.workloads.compute.device.torch_device import CpuDevice
from wanbed.workloads.compute.span_timer import EventTimer, HostTimer, create_timer

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
