"""Log torch's computation as spans of this project's span log."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from results.records.span_log import NO_MICROBATCH, ComputeKind, Span, SpanLog


class ComputeSpans:
    """Measures computation on this rank's GPU, iteration by iteration. All calls come from one thread."""

    def __init__(self, log: SpanLog, epoch_ns: int) -> None:
        self._log = log
        self._epoch_ns = epoch_ns
        self._iteration = 0
        self._last: Span | None = None

    def begin(self, iteration: int) -> None:
        """Assign all spans from now on to ``iteration``."""
        self._iteration = iteration

    @contextmanager
    def measured(self, kind: ComputeKind, microbatch: int = NO_MICROBATCH) -> Iterator[None]:
        """Measure the block as one span. A block that raises leaves no span."""
        start_ns = time.monotonic_ns()
        yield
        self.record(kind, microbatch, start_ns, time.monotonic_ns())

    def record(self, kind: ComputeKind, microbatch: int, start_ns: int, end_ns: int) -> None:
        """Record a span with the given times, in CLOCK_MONOTONIC nanoseconds."""
        self._hand_over()
        self._last = Span(kind, self._iteration, microbatch, start_ns - self._epoch_ns, end_ns - self._epoch_ns)

    def extend(self) -> None:
        """Extend the last span until now, to include the work done since its end."""
        assert self._last is not None
        self._last = self._last._replace(end_ns=time.monotonic_ns() - self._epoch_ns)

    def flush(self, loss: float | None) -> None:
        """End the iteration: write its spans to the log, and its loss unless it is None at this rank."""
        self._hand_over()
        if loss is not None:
            self._log.record_loss(self._iteration, loss)
        self._log.flush()

    def _hand_over(self) -> None:
        if self._last is not None:
            self._log.record(self._last)
            self._last = None
