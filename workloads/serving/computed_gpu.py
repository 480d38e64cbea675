"""One GPU that training and prefill share, where torch computes both. Training has priority.

The worker's thread computes prefill one layer at a time, and serves its connections between layers. A layer cannot be
interrupted: training waits for the end of a layer under way, however long that takes.
"""

import os
import time
from collections.abc import Callable
from threading import Condition

from wanbed.workloads.bubbletea.bubble_filler import BubbleFiller, LayerRun
from wanbed.workloads.bubbletea.messages import BubbleReport, Piece, PieceDone
from wanbed.workloads.serving.prefill_compute import PieceResults, PrefillCompute
from wanbed.workloads.serving.shared_gpu import SharedGpu


class ComputedGpu(SharedGpu):
    """A GPU whose prefill is computed by ``prefill``. ``filler`` plans with the times of its profile.

    Each layer is a span of its own, with measured start and end. A deadline overrun is measured: the time that
    training's thread waited after its claim.
    """

    def __init__(
        self,
        number: int,
        filler: BubbleFiller,
        prefill: PrefillCompute,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        super().__init__(number, filler, clock)
        self._prefill = prefill
        self._released = Condition(self._lock)
        self._computing = False
        self._claimed = False
        self._layers_done = 0

    # Training's thread

    def claim(self) -> None:
        """Block until training has the GPU: not at all, or until the end of the layer under way."""
        with self._released:
            self._idle = False
            self._filler.training_wants(self._clock())
            self._claimed = True
            while self._computing:
                self._released.wait()
            self._claimed = False
            if self._filler.run_under_way is not None:
                self._layer_over(self._clock())

    def idle(self) -> None:
        """Let prefill use the GPU while training waits for others, until training claims it again."""
        if not self._idle:
            with self._lock:
                self._idle = True
                self._wake()

    # The worker's thread

    def input_arrived(self, request: int, chunk: int, payload: memoryview | None) -> None:
        """Take the activation of the previous stage. Raises ValueError if ``payload`` is None."""
        if payload is None:
            raise ValueError(f"request {request}: chunk {chunk} came without its activation")
        self._prefill.input_arrived(request, chunk, payload)
        super().input_arrived(request, chunk, payload)

    def take_results(self, piece: Piece) -> PieceResults:
        """Return the results of a finished piece. Call it once for each piece."""
        return self._prefill.take_results(piece)

    def advance(self) -> list[PieceDone | BubbleReport]:
        """Compute one layer if one is due and training leaves the time. Return the messages for the controller.

        After a layer, ``news`` wakes the worker again at once.
        """
        with self._lock:
            run = None
            if self._idle and not self._stopped:
                run = self._filler.next_run(self._clock(), idle=True, most_layers=1)
            self._computing = run is not None
        if run is not None:
            self._compute(run)
        with self._lock:
            messages, self._outbox = self._outbox, []
        return messages

    def stop(self) -> None:
        """Begin no further layer."""
        with self._lock:
            self._stopped = True

    def _compute(self, run: LayerRun) -> None:
        span_ns = None
        try:
            span_ns = self._prefill.run_layer(run)
        finally:
            # Release training even if the layer has failed.
            with self._released:
                self._computing = False
                self._layers_done = 0 if span_ns is None else 1
                if span_ns is not None:
                    self._keep_span(run.piece.request, *span_ns)
                if self._claimed:
                    self._released.notify()
                else:
                    self._layer_over(self._clock())
                self._wake()

    def _layer_over(self, now_ns: int) -> None:
        done = self._filler.run_ended(now_ns, self._layers_done)
        if done is not None:
            self._queue_message(done)

    def _wake(self) -> None:
        os.eventfd_write(self.news, 1)
