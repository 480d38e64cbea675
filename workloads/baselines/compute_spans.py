"""Log torch's computation as spans of this project's span log.

A span begins and ends at marks: moments on the host's clock, or in a GPU's stream of kernels.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from wanbed.results.records.span_log import NO_MICROBATCH, ComputeKind, DeviceRecord, Span, SpanLog
from wanbed.workloads.compute.device.device_clock import EventClock
from wanbed.workloads.compute.device.device_runtime import DeviceEvent, DeviceRuntime
from wanbed.workloads.compute.device.torch_device import TorchDevice, kernels_are_deterministic

Mark: TypeAlias = int | DeviceEvent
"""A moment: in CLOCK_MONOTONIC nanoseconds, or an event of the GPU."""


class DeviceMarks(ABC):
    """Marks moments at which the work enqueued so far is done. No mark blocks the host."""

    @property
    @abstractmethod
    def clock_error_ns(self) -> int:
        """The maximum error of the conversion to the host's clock so far."""

    @abstractmethod
    def mark(self) -> Mark:
        """Mark the moment at which all work that was enqueued before is done."""

    @abstractmethod
    def times_ns(self, marks: Sequence[Mark]) -> list[int]:
        """Wait for the marks, all made since the last call. Return their times in CLOCK_MONOTONIC nanoseconds."""


class HostMarks(DeviceMarks):
    """Marks of a CPU, where work is done when the call returns."""

    clock_error_ns = 0

    def mark(self) -> Mark:
        """Return the current time."""
        return time.monotonic_ns()

    def times_ns(self, marks: Sequence[Mark]) -> list[int]:
        """Return the marks, which are times."""
        return [each for each in marks if isinstance(each, int)]


class EventMarks(DeviceMarks):
    """Marks of a GPU: events on its compute stream, related to the host's clock at every ``times_ns``."""

    def __init__(self, runtime: DeviceRuntime, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._runtime = runtime
        self._clock = EventClock(runtime, now_ns)

    def mark(self) -> Mark:
        """Record an event behind the kernels of this thread."""
        event = self._clock.event()
        self._runtime.compute_stream().record(event)
        return event

    def times_ns(self, marks: Sequence[Mark]) -> list[int]:
        """Interpolate between the looks at the clock before and after the marks."""
        origin, clock = self._clock.compare()
        events = [each for each in marks if isinstance(each, DeviceEvent)]
        times_ns = [clock.host_ns(each.since_ns(origin)) for each in events]
        self._clock.reuse([origin, *events])
        return times_ns

    @property
    def clock_error_ns(self) -> int:
        """The maximum error of the conversion to the host's clock so far."""
        return self._clock.error_ns


def create_marks(runtime: DeviceRuntime | None) -> DeviceMarks:
    """Return the marks of the GPU that ``runtime`` is, of the CPU if there is none."""
    return HostMarks() if runtime is None else EventMarks(runtime)


@dataclass(slots=True)
class _Marked:
    kind: ComputeKind
    microbatch: int
    start: Mark
    end: Mark | None = None


class ComputeSpans:
    """Measures computation on this rank's device, iteration by iteration. One call is made at a time."""

    def __init__(self, log: SpanLog, epoch_ns: int, marks: DeviceMarks | None = None) -> None:
        self._log = log
        self._epoch_ns = epoch_ns
        self._marks = HostMarks() if marks is None else marks
        self._iteration = 0
        self._marked: list[_Marked] = []
        self._current: _Marked | None = None

    def begin(self, iteration: int) -> None:
        """Assign all spans until the next ``flush`` to ``iteration``."""
        self._iteration = iteration

    @contextmanager
    def measured(self, kind: ComputeKind, microbatch: int = NO_MICROBATCH) -> Iterator[None]:
        """Measure the block as one span. A block that raises leaves no span."""
        self._current = span = _Marked(kind, microbatch, self._marks.mark())
        yield
        if span.end is None:
            span.end = self._marks.mark()
        self._marked.append(span)

    def restart(self) -> None:
        """Let the span that is being measured start now: what came before was no computation."""
        assert self._current is not None
        self._current.start = self._marks.mark()

    def stop(self) -> None:
        """Let the last span end now, whatever its block still does. A later call counts."""
        assert self._current is not None
        self._current.end = self._marks.mark()

    def flush(self, loss: float | None) -> None:
        """End the iteration: write its spans to the log, and its loss unless it is None at this rank."""
        marked, self._marked, self._current = self._marked, [], None
        marks = [mark for span in marked for mark in (span.start, span.end) if mark is not None]
        times_ns = [time_ns - self._epoch_ns for time_ns in self._marks.times_ns(marks)]
        for span, start_ns, end_ns in zip(marked, times_ns[::2], times_ns[1::2], strict=True):
            self._log.record(Span(span.kind, self._iteration, span.microbatch, start_ns, end_ns))
        if loss is not None:
            self._log.record_loss(self._iteration, loss)
        self._log.flush()

    @property
    def clock_error_ns(self) -> int:
        """The maximum error of a span's times that results from the device's own clock."""
        return self._marks.clock_error_ns


def device_record(
    device: TorchDevice, spans: ComputeSpans, *, to_host_bytes: int = 0, to_device_bytes: int = 0
) -> DeviceRecord:
    """Return what a rank reports of its device at its end. How long copies took is not measured."""
    runtime = device.runtime
    return DeviceRecord(
        device="cpu" if runtime is None else runtime.device,
        model="cpu" if runtime is None else runtime.model,
        to_host_bytes=to_host_bytes,
        to_device_bytes=to_device_bytes,
        clock_error_ns=spans.clock_error_ns,
        deterministic=kernels_are_deterministic(),
    )
