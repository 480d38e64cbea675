"""Plan when each GPU of a group runs which chunk of a prompt.

Chunks pass the stages in the order in which requests were admitted. At stage j a chunk starts in a bubble of that GPU,
after the previous chunk there, and after its activation has arrived from stage j - 1. A GPU's bubbles are those of its
last report, repeated in every later period. Each GPU has a cursor at the end of its last planned piece, so placing
another chunk examines only the bubbles that it uses.

The plan is recomputed from the unfinished pieces whenever a GPU has reported new bubbles, and at most once a second
when pieces end later than planned. A piece under way then counts as not begun, so the plan errs on the late side.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from wanbed.workloads.bubbletea.bubble_forecast import longest
from wanbed.workloads.bubbletea.messages import ENDLESS_NS, BubbleReport
from wanbed.workloads.bubbletea.prefill_profile import PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import PrefillSettings
from wanbed.workloads.bubbletea.request import Reason
from wanbed.workloads.inference.inference_model import InferenceModel


@dataclass(frozen=True, slots=True)
class Chunk:
    """``tokens`` tokens of a prompt after ``prior_tokens``.

    One layer takes ``layer_ns``. The activation, ``activation_bytes``, moves to the next stage in ``transfer_ns``.
    """

    tokens: int
    prior_tokens: int
    layer_ns: int
    transfer_ns: int
    activation_bytes: int


class ChunkTimes:
    """Cuts prompts into chunks for one model, and computes their times by one profile."""

    def __init__(self, model: InferenceModel, profile: PrefillProfile, settings: PrefillSettings) -> None:
        self._chunk_tokens = settings.chunk_tokens
        self._profile = profile

        @lru_cache(maxsize=1 << 16)
        def chunk(tokens: int, prior_tokens: int) -> Chunk:
            size_bytes = model.activation_bytes(tokens)
            layer_ns = profile.chunk_ns(1, tokens, prior_tokens)
            return Chunk(tokens, prior_tokens, layer_ns, settings.transfer_ns(size_bytes), size_bytes)

        self._chunk = chunk

    def next_chunk(self, prompt_tokens: int, prior_tokens: int, longest_bubble_ns: int) -> Chunk | None:
        """Return the chunk after ``prior_tokens``: the configured size, or smaller if needed for the longest bubble.

        One layer of the chunk must fit into that bubble. Returns None if not even a chunk of one token fits.
        """
        chunk = self._chunk(min(self._chunk_tokens, prompt_tokens - prior_tokens), prior_tokens)
        if chunk.layer_ns <= longest_bubble_ns:
            return chunk
        tokens = self._profile.largest_chunk(1, prior_tokens, longest_bubble_ns)
        return self._chunk(tokens, prior_tokens) if tokens else None

    def layer_ns(self, prompt_tokens: int) -> int:
        """Return the time of a whole prompt in one layer, in chunks of the configured size."""
        step = self._chunk_tokens
        return sum(
            self._chunk(min(step, prompt_tokens - prior), prior).layer_ns for prior in range(0, prompt_tokens, step)
        )


class GpuTimeline:
    """Places work in a GPU's bubbles, layer by layer, without keeping a record of what was placed.

    Before the first report there is no bubble.
    """

    def __init__(self) -> None:
        self._anchor_ns = 0
        self._period_ns = 0
        self._starts_ns: list[int] = []
        self._ends_ns: list[int] = []
        self.longest_ns = 0
        """The length of the longest bubble."""
        self.bubble_ns = 0
        """The total length of all bubbles in one period."""

    def update(self, report: BubbleReport) -> None:
        """Use the bubbles of ``report`` from now on."""
        self._anchor_ns, self._period_ns = report.anchor_ns, report.period_ns
        self._starts_ns = [start_ns for start_ns, _ in report.bubbles]
        self._ends_ns = [end_ns for _, end_ns in report.bubbles]
        self.bubble_ns = sum(self._ends_ns) - sum(self._starts_ns)
        self.longest_ns = longest(report.bubbles) if report.period_ns else ENDLESS_NS

    def place(self, from_ns: int, layers: int, layer_ns: int, until_ns: int) -> tuple[int, int] | None:
        """Return the start and the end of ``layers`` layers placed from ``from_ns`` on.

        Return None if they would not end by ``until_ns``. A layer is never split: one that does not fit into the rest
        of a bubble goes to the next bubble.
        """
        if layer_ns > self.longest_ns:
            return None
        if not self._period_ns:
            end_ns = from_ns + layers * layer_ns
            return (from_ns, end_ns) if end_ns <= until_ns else None
        starts_ns, ends_ns = self._starts_ns, self._ends_ns
        periods, offset_ns = divmod(from_ns - self._anchor_ns, self._period_ns)
        base_ns = self._anchor_ns + periods * self._period_ns
        index = bisect_right(ends_ns, offset_ns)
        begun_ns = None
        while True:
            if index == len(ends_ns):
                index = 0
                base_ns += self._period_ns
            at_ns = max(from_ns, base_ns + starts_ns[index])
            if at_ns > until_ns:
                return None
            fitting = (base_ns + ends_ns[index] - at_ns) // layer_ns
            if fitting > 0:
                if begun_ns is None:
                    begun_ns = at_ns
                if fitting >= layers:
                    end_ns = at_ns + layers * layer_ns
                    return (begun_ns, end_ns) if end_ns <= until_ns else None
                layers -= fitting
            index += 1

    def stretched_ns(self, from_ns: int, work_ns: int) -> int:
        """Estimate the end of ``work_ns`` of work begun at ``from_ns``, as if bubbles were spread evenly over time.

        Layers that do not fit into the rest of a bubble are not accounted for.
        """
        if not self._period_ns:
            return from_ns + work_ns if self.longest_ns else ENDLESS_NS
        return from_ns + work_ns * self._period_ns // self.bubble_ns if self.bubble_ns else ENDLESS_NS


_CORRECTED_AGAIN_NS = 1_000_000_000
"""The least time between two recomputations of the plan because of late pieces."""


@dataclass(frozen=True)
class PlannedPrefill:
    """The plan of one prompt.

    ``start_ns`` is the start of its first layer, ``end_ns`` the end of its last one. ``cursors_ns`` has each stage's
    cursor after the prompt, ``ends_ns`` each chunk's end at each stage.
    """

    chunks: tuple[Chunk, ...]
    start_ns: int
    end_ns: int
    cursors_ns: tuple[int, ...]
    ends_ns: tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class _Outstanding:
    """A chunk that has not left the last stage. ``ready_ns`` is when it is at the next stage, ``ends_ns`` its plan."""

    request: int
    number: int
    chunk: Chunk
    ready_ns: int
    ends_ns: Sequence[int]
    stages_done: int = 0


class GroupTimeline:
    """The plan of one group with one stage on each GPU. ``stage_layers`` has the number of layers of each stage."""

    def __init__(self, stage_layers: tuple[int, ...], times: ChunkTimes, dispatch_ns: int) -> None:
        self._layers = stage_layers
        self._times = times
        self._dispatch_ns = dispatch_ns
        self._gpus = [GpuTimeline() for _ in stage_layers]
        self._cursors_ns = [0] * len(stage_layers)
        self._outstanding: deque[_Outstanding] = deque()
        self._by_chunk: dict[tuple[int, int], _Outstanding] = {}
        self._stale = False
        self._slipped = False
        self._corrected_ns = 0
        self._longest_ns = 0

    @property
    def horizon_ns(self) -> int:
        """The time at which all planned work is done; ``ENDLESS_NS`` while a GPU has no known bubble."""
        return max(self._cursors_ns) if self._longest_ns else ENDLESS_NS

    @property
    def outstanding_chunks(self) -> int:
        """The number of chunks that have not left their last stage."""
        return len(self._outstanding)

    def report(self, stage: int, report: BubbleReport) -> None:
        """Update the bubbles of a stage's GPU."""
        self._gpus[stage].update(report)
        self._longest_ns = min(gpu.longest_ns for gpu in self._gpus)
        self._stale = True

    def plan(self, now_ns: int, prompt_tokens: int, until_ns: int) -> PlannedPrefill | Reason:
        """Plan a prompt admitted now. Return the reason instead if it would not be prefilled by ``until_ns``."""
        if not self._longest_ns:
            return Reason.FORECAST
        self._correct(now_ns)
        if self.horizon_ns > until_ns:
            return Reason.SLO
        cursors_ns = list(self._cursors_ns)
        layers, gpus = self._layers, self._gpus
        chunks: list[Chunk] = []
        ends_ns: list[tuple[int, ...]] = []
        starts_ns: list[int] = []
        prior_tokens = 0
        while prior_tokens < prompt_tokens:
            chunk = self._times.next_chunk(prompt_tokens, prior_tokens, self._longest_ns)
            if chunk is None:
                return Reason.NEVER_FITS
            ready_ns = now_ns + self._dispatch_ns
            for stage, gpu in enumerate(gpus):
                placed = gpu.place(max(ready_ns, cursors_ns[stage]), layers[stage], chunk.layer_ns, until_ns)
                if placed is None:
                    return Reason.SLO
                starts_ns.append(placed[0])
                cursors_ns[stage] = placed[1]
                ready_ns = placed[1] + chunk.transfer_ns
            chunks.append(chunk)
            ends_ns.append(tuple(cursors_ns))
            prior_tokens += chunk.tokens
        return PlannedPrefill(tuple(chunks), starts_ns[0], cursors_ns[-1], tuple(cursors_ns), tuple(ends_ns))

    def commit(self, now_ns: int, request: int, planned: PlannedPrefill) -> None:
        """Commit the result of the last ``plan``. Nothing else may have been committed since."""
        self._cursors_ns = list(planned.cursors_ns)
        for number, (chunk, ends_ns) in enumerate(zip(planned.chunks, planned.ends_ns, strict=True)):
            outstanding = _Outstanding(request, number, chunk, now_ns + self._dispatch_ns, ends_ns)
            self._outstanding.append(outstanding)
            self._by_chunk[request, number] = outstanding

    def piece_done(self, request: int, number: int, stage: int, ended_ns: int) -> None:
        """Record that a chunk has left a stage. GPUs may report in any order; an outdated report changes nothing."""
        outstanding = self._by_chunk.get((request, number))
        if outstanding is None or stage < outstanding.stages_done:
            return
        outstanding.stages_done = stage + 1
        outstanding.ready_ns = ended_ns + outstanding.chunk.transfer_ns
        self._slipped = self._slipped or ended_ns > outstanding.ends_ns[stage]
        if outstanding.stages_done == len(self._layers):
            del self._by_chunk[request, number]
            while self._outstanding and self._outstanding[0].stages_done == len(self._layers):
                self._outstanding.popleft()

    def _correct(self, now_ns: int) -> None:
        """Recompute the plan of all unfinished work from ``now_ns`` on, if bubbles have changed or pieces were late."""
        if not self._stale and not (self._slipped and now_ns - self._corrected_ns >= _CORRECTED_AGAIN_NS):
            return
        self._stale = self._slipped = False
        self._corrected_ns = now_ns
        cursors_ns = [now_ns] * len(self._layers)
        for outstanding in self._outstanding:
            ready_ns = max(now_ns, outstanding.ready_ns)
            ends_ns = [0] * outstanding.stages_done
            for stage in range(outstanding.stages_done, len(self._layers)):
                ready_ns = cursors_ns[stage] = self._end_of(stage, max(ready_ns, cursors_ns[stage]), outstanding.chunk)
                ends_ns.append(ready_ns)
                ready_ns += outstanding.chunk.transfer_ns
            outstanding.ends_ns = ends_ns
        self._cursors_ns = cursors_ns

    def _end_of(self, stage: int, from_ns: int, chunk: Chunk) -> int:
        gpu, layers = self._gpus[stage], self._layers[stage]
        placed = gpu.place(from_ns, layers, chunk.layer_ns, ENDLESS_NS)
        # Bubbles have become shorter than one layer: the GPU will cut the chunk, at a place not known here.
        return placed[1] if placed else gpu.stretched_ns(from_ns, layers * chunk.layer_ns)
