"""One GPU that training and prefill share, where prefill is replayed. Training has priority.

A replayed run occupies the GPU from its start to its end without using a thread. When training claims the GPU, the
layer at which the run ends follows from the run's times alone. So training's thread never waits for the worker's
thread, only for the GPU itself, if training comes back earlier than predicted.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from wanbed.workloads.bubbletea.bubble_filler import BubbleFiller
from wanbed.workloads.bubbletea.messages import BubbleReport, Piece, PieceDone
from wanbed.workloads.compute.compute import TrainingGpu
from wanbed.workloads.serving.frame_channel import PreciseTimer

if TYPE_CHECKING:
    from wanbed.workloads.serving.prefill_compute import PieceResults


@dataclass(frozen=True, slots=True)
class PrefillSpan:
    """Consecutive layers of one request, run while training was in ``iteration``. CLOCK_MONOTONIC nanoseconds."""

    request: int
    iteration: int
    start_ns: int
    end_ns: int


class SharedGpu(TrainingGpu):
    """The GPU ``number``, whose pieces are queued in ``filler``. Prefill is replayed: it takes time but no real GPU.

    Training's thread calls the methods of TrainingGpu, and ``idle`` before it waits for anything; the worker calls the
    other methods. ``timer`` wakes the worker when a run is over, ``news`` (an eventfd) when there is a message for the
    controller. No method holds the lock while it waits.
    """

    def __init__(self, number: int, filler: BubbleFiller, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.number = number
        self.timer = PreciseTimer()
        self.news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._filler = filler
        self._clock = clock
        self._lock = Lock()
        self._idle = False
        self._stopped = False
        self._iteration = 0
        self._action = ("", -1)
        self._reported: int | None = None
        self._outbox: list[PieceDone | BubbleReport] = []
        self._spans: list[PrefillSpan] = []
        self._margins_ns: list[int] = []

    # Training's thread

    def claim(self) -> None:
        """Block until training has the GPU: not at all, or until the end of the layer under way."""
        with self._lock:
            self._idle = False
            now_ns = self._clock()
            release_ns = self._filler.training_wants(now_ns)
            run = self._filler.run_under_way
            if run is None:
                return
            if release_ns <= now_ns:
                self._end_run(min(now_ns, run.end_ns))
                return
        while (now_ns := self._clock()) < release_ns:
            time.sleep((release_ns - now_ns) / 1e9)
        with self._lock:
            self._end_run(now_ns)

    def began(self, start_ns: int, iteration: int, kind: str, microbatch: int) -> None:
        """Record the start of a training action, and queue a bubble report once an iteration."""
        with self._lock:
            self._iteration, self._action = iteration, (kind, microbatch)
            self._filler.training_started(start_ns, iteration, self._action)
            if iteration != self._reported:
                self._reported = iteration
                if (report := self._filler.forecast.report(self.number)) is not None:
                    self._margins_ns.append(report.margin_ns)
                    self._queue_message(report)

    def ended(self, end_ns: int) -> None:
        """Record the end of the training action."""
        with self._lock:
            self._filler.training_ended(end_ns, self._iteration, self._action)

    def idle(self) -> None:
        """Let prefill use the GPU while training waits for others, until training claims it again."""
        if self._idle:
            return
        with self._lock:
            self._idle = True
            self._fill(self._clock())

    def take_spans(self) -> list[PrefillSpan]:
        """Return the prefill spans since the last call."""
        with self._lock:
            taken, self._spans = self._spans, []
        return taken

    # The worker's thread

    def never_trained(self) -> None:
        """Let prefill use the GPU all the time, because nothing trains on it."""
        with self._lock:
            self._filler.training_over()
            self._idle = True
            report = self._filler.forecast.report(self.number)
            assert report is not None
            self._queue_message(report)

    def enqueue(self, piece: Piece) -> None:
        """Queue a piece that the controller has sent."""
        with self._lock:
            self._filler.enqueue(piece)

    def input_arrived(self, request: int, chunk: int, payload: memoryview | None) -> None:
        """Take the activation of the previous stage. ``payload`` is None where prefill is replayed."""
        with self._lock:
            self._filler.input_arrived(request, chunk)

    def take_results(self, _piece: Piece) -> "PieceResults | None":
        """Return the results of a finished piece: None, because prefill is replayed."""
        return None

    def advance(self) -> list[PieceDone | BubbleReport]:
        """End a run that is over, start the next one, and return the messages for the controller."""
        with self._lock:
            if self._idle and not self._stopped:
                now_ns = self._clock()
                run = self._filler.run_under_way
                if run is not None and run.end_ns <= now_ns:
                    self._end_run(run.end_ns)
                self._fill(now_ns)
            messages, self._outbox = self._outbox, []
        return messages

    def stop(self) -> None:
        """Start no further run. Of a run under way only the finished layers count."""
        with self._lock:
            self._stopped = True
            run = self._filler.run_under_way
            if run is not None:
                layers = min(run.layers, (self._clock() - run.start_ns) // run.layer_ns)
                self._keep_span(run.piece.request, run.start_ns, run.start_ns + layers * run.layer_ns)
                self._filler.run_ended(run.start_ns + layers * run.layer_ns, 0)

    def counts(self) -> dict[str, int | list[int]]:
        """Return the number and total length (ns) of deadline overruns, and the margin (ns) of each iteration."""
        filler = self._filler
        return {
            "deadline_overruns": filler.deadline_overruns,
            "overrun_ns": filler.overrun_ns,
            "margins_ns": self._margins_ns,
        }

    def _fill(self, now_ns: int) -> None:
        if self._stopped:
            return
        run = self._filler.next_run(now_ns, idle=True)
        if run is not None:
            self.timer.set(run.end_ns)

    def _end_run(self, end_ns: int) -> None:
        run = self._filler.run_under_way
        assert run is not None
        done = self._filler.run_ended(end_ns)
        self._keep_span(run.piece.request, run.start_ns, end_ns if run.layers else run.start_ns)
        if done is not None:
            self._queue_message(done)

    def _keep_span(self, request: int, start_ns: int, end_ns: int) -> None:
        if start_ns < end_ns:
            self._spans.append(PrefillSpan(request, self._iteration, start_ns, end_ns))

    def _queue_message(self, message: PieceDone | BubbleReport) -> None:
        self._outbox.append(message)
        os.eventfd_write(self.news, 1)
