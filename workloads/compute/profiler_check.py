"""Record one iteration with torch.profiler too, to compare its busy time of the device with that of the spans.

The profiler slows the computation, so the iteration is one of the warm-up, and only its spans are compared.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch.profiler import ProfilerActivity, profile, record_function

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
