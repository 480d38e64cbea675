"""Plan when each GPU of a group runs which chunk.

Chunks pass the stages in the order in which requests were admitted. At stage j a chunk starts in a bubble of that GPU,
after the previous chunk there, and after its activation has arrived from stage j - 1. Each GPU has a cursor at the end
of its last planned piece, so placing another chunk examines only the bubbles that it uses.

The plan is recomputed from the unfinished pieces whenever a GPU has reported new bubbles, and at most once a second
when pieces end later than planned. A piece under way then counts as not begun, so the plan errs on the late side.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from wanbed.workloads.prefill.bubbles.gpu_timeline import GpuTimeline
from wanbed.workloads.prefill.control.outcome import Reason
from wanbed.workloads.prefill.control.prompt_chunks import Chunk, ChunkTimes
from wanbed.workloads.prefill.messages import ENDLESS_NS, BubbleReport

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
