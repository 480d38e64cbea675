"""Measure one rank's device: the busy time of each action, its check by torch.profiler, and the bytes staged.

On the CPU the time of an action is from the call to the return. On a GPU it is between two events on the device's own
clock. The events are read once an iteration, and the clock is compared with the host's at the same time. The profiler
slows the computation, so it records one iteration of the warm-up, whose spans alone it is compared with.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch.profiler import ProfilerActivity, profile, record_function

from wanbed.results.records.span_log import DeviceRecord
from wanbed.workloads.compute.device.device_clock import EventClock
from wanbed.workloads.compute.device.device_runtime import DeviceEvent, DeviceRuntime
from wanbed.workloads.compute.device.staging import Staged
from wanbed.workloads.compute.device.torch_device import TorchDevice, kernels_are_deterministic

_MARK = "wanbed "
"""The prefix of the name of every span's mark in the profile."""

_NOT_COMPUTED = ("memcpy", "nccl")


class ProfiledEvent(NamedTuple):
    """One entry of a profile: an operator on the CPU, a kernel or copy on the device, or a mark of this program.

    ``stream`` is that of a kernel, and of a mark on the device: the profiler repeats a mark in each stream that has
    work from inside it.
    """

    name: str
    start_ns: int
    end_ns: int
    on_device: bool = False
    is_mark: bool = False
    stream: int = 0


def profiled_busy_ns(events: Iterable[ProfiledEvent], *, on_device: bool) -> int:
    """Return the length in nanoseconds of the union of the computed intervals.

    On the CPU these are the operators within the marks of spans: operators outside of any mark are the rank's own work
    between spans, and Python between operators is not computation. On a device they are the kernels in the streams of
    the marks, without copies and communication: prefill computes in a stream of its own. Where the profiler has no
    marks on the device, kernels of all streams count.
    """
    own = [
        each
        for each in events
        if each.on_device == on_device
        and (each.name.startswith(_MARK) if each.is_mark else not each.name.lower().startswith(_NOT_COMPUTED))
    ]
    streams = {each.stream for each in own if each.is_mark}
    computed = [
        (each.start_ns, each.end_ns)
        for each in own
        if not each.is_mark and (not (on_device and streams) or each.stream in streams)
    ]
    if on_device:
        return _union_ns(computed)
    marks = [(each.start_ns, each.end_ns) for each in own if each.is_mark]
    # The intersection of two sets of intervals: the sum of their unions less the union of all.
    return _union_ns(computed) + _union_ns(marks) - _union_ns(computed + marks)


def _union_ns(intervals: Iterable[tuple[int, int]]) -> int:
    covered_ns, reached_ns = 0, -1
    for start_ns, end_ns in sorted(intervals):
        covered_ns += max(0, end_ns - max(start_ns, reached_ns))
        reached_ns = max(reached_ns, end_ns)
    return covered_ns


class ProfilerCheck:
    """The profile of one iteration. Call ``begin``, ``mark`` around each span, and ``end``."""

    def __init__(self, *, on_device: bool) -> None:
        self._on_device = on_device
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_device else [])]
        self._profile = profile(activities=activities)

    def begin(self) -> None:
        """Start the profiler. Loading it may take seconds."""
        self._profile.__enter__()  # type: ignore[no-untyped-call]

    def mark(self, kind: str) -> record_function:
        """Return a context that marks the work of one span of that kind."""
        return record_function(_MARK + kind)

    def end(self) -> int:
        """Stop the profiler. Return the ``profiled_busy_ns`` of its events."""
        self._profile.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        events = self._profile.events() or ()  # type: ignore[no-untyped-call]
        return profiled_busy_ns(map(_event, events), on_device=self._on_device)


def _event(event: Any) -> ProfiledEvent:
    # torch gives microseconds with the nanoseconds as decimals.
    start_ns, end_ns = (round(moment * 1000) for moment in (event.time_range.start, event.time_range.end))
    is_mark = bool(event.is_user_annotation) or event.name.startswith(_MARK)
    on_device = event.device_type.name != "CPU"
    return ProfiledEvent(event.name, start_ns, end_ns, on_device, is_mark, event.device_resource_id)


class SpanTimer(ABC):
    """Times actions, iteration by iteration. All calls come from one thread."""

    @abstractmethod
    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """Carry out ``work``. Return when the host began it and when it saw the end, in CLOCK_MONOTONIC nanoseconds."""

    @abstractmethod
    def resolve(self) -> list[tuple[int, int]]:
        """Return the busy intervals since the last call, one for each ``timed``, in order, on the host's clock."""

    @property
    @abstractmethod
    def clock_error_ns(self) -> int:
        """The maximum error of the conversion to the host's clock so far, in nanoseconds."""


class HostTimer(SpanTimer):
    """Times a device whose own ``timed`` returns the busy time."""

    clock_error_ns = 0

    def __init__(self, device: TorchDevice) -> None:
        self._device = device
        self._timed: list[tuple[int, int]] = []

    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """Let the device time ``work``, and keep the interval."""
        interval = self._device.timed(work)
        self._timed.append(interval)
        return interval

    def resolve(self) -> list[tuple[int, int]]:
        """Return the intervals that ``timed`` has returned since the last call."""
        timed, self._timed = self._timed, []
        return timed


@dataclass(frozen=True, slots=True)
class _Timed:
    before: DeviceEvent
    after: DeviceEvent
    seen: tuple[int, int]


class EventTimer(SpanTimer):
    """Records a GPU's events before and after every action. The events are reused in each iteration.

    It times the stream that was the thread's compute stream when the timer was made. ``timed`` returns when the device
    is done, because the next action is chosen when the GPU becomes idle, not before.
    No busy time includes the delay until the host sees the end.
    """

    def __init__(self, runtime: DeviceRuntime, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._clock = EventClock(runtime, now_ns)
        # Asking for it again for every action would cost as much as recording an event.
        self._compute = runtime.compute_stream()
        self._timed: list[_Timed] = []

    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """Carry out ``work``. Return when the host enqueued it and when it saw its end."""
        before, after = self._clock.event(), self._clock.event()
        start_ns = self._now_ns()
        self._compute.record(before)
        work()
        self._compute.record(after)
        after.wait()
        seen = start_ns, self._now_ns()
        self._timed.append(_Timed(before, after, seen))
        return seen

    def resolve(self) -> list[tuple[int, int]]:
        """Return the intervals between the events, within the times that ``timed`` returned."""
        origin, clock = self._clock.compare()
        intervals = [
            clock.interval_ns(each.before.since_ns(origin), each.after.since_ns(origin), each.seen)
            for each in self._timed
        ]
        self._clock.reuse([origin, *(event for each in self._timed for event in (each.before, each.after))])
        self._timed.clear()
        return intervals

    @property
    def clock_error_ns(self) -> int:
        """The maximum error of the conversion to the host's clock so far, in nanoseconds."""
        return self._clock.error_ns


def create_timer(device: TorchDevice) -> SpanTimer:
    """Return the timer for computation on ``device``."""
    return HostTimer(device) if device.runtime is None else EventTimer(device.runtime)


class DeviceMeasurement:
    """Times every action of a rank on ``device``. torch.profiler also records ``check_iteration`` unless it is None."""

    def __init__(self, device: TorchDevice, check_iteration: int | None = None) -> None:
        self._runtime = device.runtime
        self._timer = create_timer(device)
        self._check_iteration = check_iteration
        self._check: ProfilerCheck | None = None
        self._checked_ns: tuple[int, int] | None = None

    def begin(self, iteration: int) -> None:
        """Begin ``iteration``, and the profiler's recording if it is the one to check."""
        if iteration == self._check_iteration:
            self._check = ProfilerCheck(on_device=self._runtime is not None)
            self._check.begin()

    def timed(self, kind: str, work: Callable[[], None]) -> tuple[int, int]:
        """Carry out ``work``, a span of that kind. Return when the host began it and when it saw the end."""
        if self._check is None:
            return self._timer.timed(work)
        check = self._check

        def marked() -> None:
            with check.mark(kind):
                work()

        return self._timer.timed(marked)

    def resolve(self) -> list[tuple[int, int]]:
        """Return the busy intervals of the device since the last call, one for each ``timed``."""
        intervals = self._timer.resolve()
        if self._check is not None:
            spans_ns = sum(end_ns - start_ns for start_ns, end_ns in intervals)
            self._checked_ns = spans_ns, self._check.end()
            self._check = None
        return intervals

    def record(self, to_host: Staged, to_device: Staged) -> DeviceRecord:
        """Return all measurements so far, with the messages copied in both directions."""
        spans_ns, profiler_ns = self._checked_ns or (0, 0)
        return DeviceRecord(
            device="cpu" if self._runtime is None else self._runtime.device,
            model="cpu" if self._runtime is None else self._runtime.model,
            to_host_bytes=to_host.size_bytes,
            to_host_ns=to_host.copy_ns,
            to_device_bytes=to_device.size_bytes,
            to_device_ns=to_device.copy_ns,
            clock_error_ns=self._timer.clock_error_ns,
            check_iteration=None if self._checked_ns is None else self._check_iteration,
            check_spans_ns=spans_ns,
            check_profiler_ns=profiler_ns,
            deterministic=kernels_are_deterministic(),
        )
