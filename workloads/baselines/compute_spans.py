"""Log torch's computation as spans of this project's span log."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from wanbed.results.records.span_log import NO_MICROBATCH, ComputeKind, DeviceRecord, Span, SpanLog
from wanbed.workloads.baselines.device_marks import DeviceMarks, HostMarks, Mark
from wanbed.workloads.compute.device.determinism import kernels_are_deterministic
from wanbed.workloads.compute.device.torch_device import TorchDevice


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
