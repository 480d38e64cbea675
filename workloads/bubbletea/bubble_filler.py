"""Fill one GPU's bubbles with prefill while training leaves it idle.

The GPU itself decides when to start work, because it learns of training's next action first. Pieces run in the order
in which the controller queued them. A run takes as many layers of one piece as end within the bubble. When training
wants the GPU, the run ends with the layer under way.
"""

from collections import deque
from dataclasses import dataclass, replace

from wanbed.workloads.bubbletea.bubble_forecast import ActionKey, BubbleForecast
from wanbed.workloads.bubbletea.messages import Piece, PieceDone
from wanbed.workloads.bubbletea.prefill_profile import PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import FillPolicy


@dataclass(frozen=True, slots=True)
class LayerRun:
    """Consecutive layers of a piece that run without a break.

    ``tokens`` after ``prior_tokens`` of the prompt go through them: all tokens of the piece, unless the piece was cut.
    """

    piece: Piece
    layers: int
    layer_ns: int
    start_ns: int
    end_ns: int
    tokens: int
    prior_tokens: int


@dataclass(slots=True)
class _Queued:
    """A piece that is not done. ``tokens`` go through the layers first, then ``later_tokens`` through all layers."""

    piece: Piece
    ready: bool
    tokens: int
    prior_tokens: int
    layers_left: int
    layer_ns: int
    later_tokens: int = 0
    started_ns: int | None = None


class BubbleFiller:
    """The queue of pieces of one GPU, and whether training or prefill has the GPU.

    Call ``next_run`` whenever the GPU becomes idle, a piece is queued or an input arrives. Call ``run_ended`` once for
    each run that it returns. Call ``training_wants`` before each training action, and start the action at the time that
    it returns.

    A deadline overrun is a wait of training for prefill. ``deadline_overruns`` counts them; ``overrun_ns`` is their
    total length.
    """

    def __init__(self, forecast: BubbleForecast, profile: PrefillProfile, policy: FillPolicy) -> None:
        self.forecast = forecast
        self._profile = profile
        self._policy = policy
        self._queue: deque[_Queued] = deque()
        self._early_inputs: set[tuple[int, int]] = set()
        self._run: LayerRun | None = None
        self._training = False
        self._waits_since_ns: int | None = None
        self.deadline_overruns = 0
        self.overrun_ns = 0

    @property
    def queued_pieces(self) -> int:
        """The number of pieces that are not done."""
        return len(self._queue)

    def enqueue(self, piece: Piece) -> None:
        """Queue a piece. After the first stage it waits for its input, which may have arrived already."""
        input_key = (piece.request, piece.chunk)
        ready = piece.stage == 0 or input_key in self._early_inputs
        self._early_inputs.discard(input_key)
        layer_ns = self._profile.chunk_ns(1, piece.tokens, piece.prior_tokens)
        self._queue.append(_Queued(piece, ready, piece.tokens, piece.prior_tokens, piece.layers, layer_ns))

    def input_arrived(self, request: int, chunk: int) -> None:
        """Mark the piece as ready: the activation of the previous stage has arrived."""
        for queued in self._queue:
            if queued.piece.request == request and queued.piece.chunk == chunk:
                queued.ready = True
                return
        self._early_inputs.add((request, chunk))

    @property
    def run_under_way(self) -> LayerRun | None:
        """The run on the GPU, None if there is none. Its end is earlier once training wants the GPU."""
        return self._run

    def next_run(self, now_ns: int, *, idle: bool, most_layers: int | None = None) -> LayerRun | None:
        """Return the run to start now, with at most ``most_layers`` layers if given; None to leave the GPU idle."""
        if not idle or self._training or self._run is not None or not self._queue:
            return None
        head = self._queue[0]
        if not head.ready or self._policy is FillPolicy.NONE:
            return None
        layers = head.layers_left
        if self._policy is FillPolicy.PLANNED:
            room_ns = self.forecast.bubble_end(now_ns) - now_ns
            self._cut(head)
            layers = min(head.layers_left, room_ns // head.layer_ns)
        if most_layers is not None:
            layers = min(layers, most_layers)
        if layers < 1:
            return None
        end_ns = now_ns + layers * head.layer_ns
        self._run = LayerRun(head.piece, layers, head.layer_ns, now_ns, end_ns, head.tokens, head.prior_tokens)
        return self._run

    def run_ended(self, now_ns: int, layers: int | None = None) -> PieceDone | None:
        """End the run, at its end or at the time that ``training_wants`` returned. Return the finished piece, if any.

        Pass ``layers``, the number of layers that ran, if it was measured and not derived from the profile's times.
        Raises ValueError if no run is under way.
        """
        run, self._run = self._run, None
        if run is None:
            raise ValueError("no run is under way")
        if self._waits_since_ns is not None:
            if now_ns > self._waits_since_ns:
                self.deadline_overruns += 1
                self.overrun_ns += now_ns - self._waits_since_ns
            self._waits_since_ns = None
        head = self._queue[0]
        started_ns = head.started_ns = run.start_ns if head.started_ns is None else head.started_ns
        head.layers_left -= run.layers if layers is None else layers
        if head.layers_left:
            return None
        if head.later_tokens:
            self._go_on(head, head.later_tokens)
            return None
        self._queue.popleft()
        piece = head.piece
        return PieceDone(piece.request, piece.stage, piece.chunk, started_ns, now_ns)

    def training_wants(self, now_ns: int) -> int:
        """Give the GPU to training after the layer under way, and return when that layer ends. Start no further run.

        A run under way is shortened to that moment; its other layers go back to the queue.
        """
        self._training = True
        self.forecast.training_wanted(now_ns)
        run = self._run
        if run is None:
            return now_ns
        self._waits_since_ns = now_ns
        if now_ns >= run.end_ns:
            return now_ns
        layers = -((run.start_ns - now_ns) // run.layer_ns)
        release_ns = run.start_ns + layers * run.layer_ns
        self._run = replace(run, layers=layers, end_ns=release_ns)
        return release_ns

    def training_started(self, now_ns: int, iteration: int, key: ActionKey) -> None:
        """Record that training has started an action on the GPU."""
        self._training = True
        self.forecast.training_started(now_ns, iteration, key)

    def training_ended(self, now_ns: int, iteration: int, key: ActionKey) -> None:
        """Record that training's action has ended and the GPU is free."""
        self._training = False
        self.forecast.training_ended(now_ns, iteration, key)

    def training_over(self) -> None:
        """Record that training will not use the GPU any more. A GPU of a dedicated pool begins in this state."""
        self._training = False
        self.forecast.training_over()

    def _cut(self, head: _Queued) -> None:
        """Cut a piece to fewer tokens if none of its layers has run and one layer does not fit into any bubble.

        The other tokens follow. Outside this class it remains one piece.
        """
        longest_ns = self.forecast.longest_bubble_ns
        if head.layers_left < head.piece.layers or head.layer_ns <= longest_ns:
            return
        tokens = self._profile.largest_chunk(1, head.prior_tokens, longest_ns)
        if 0 < tokens < head.tokens:
            head.later_tokens += head.tokens - tokens
            head.tokens = tokens
            head.layer_ns = self._profile.chunk_ns(1, tokens, head.prior_tokens)

    def _go_on(self, head: _Queued, tokens: int) -> None:
        head.prior_tokens += head.tokens
        head.tokens, head.later_tokens = tokens, 0
        head.layers_left = head.piece.layers
        head.layer_ns = self._profile.chunk_ns(1, tokens, head.prior_tokens)
