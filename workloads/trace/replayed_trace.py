"""A replayed trace: what every rank does in one iteration, and what waits for what."""

from dataclasses import dataclass
from enum import StrEnum

from wanbed.results.records.span_log import NO_MICROBATCH
from wanbed.workloads.trace.ring_collective import RingCollective


class WorkKind(StrEnum):
    """The work of a node. ``NOTHING`` takes no time."""

    GPU = "gpu"
    CPU = "cpu"
    SEND = "send"
    RECEIVE = "receive"
    COLLECTIVE = "collective"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One node of one rank's graph.

    - ``after``: the positions of the nodes that must have ended before it begins, all lower than its own.
    - ``duration_ns``: how long it occupies the GPU or the CPU; the other kinds last as long as the network takes.
    - ``span``: the kind of the span of a computation or a collective; ``microbatch``: the microbatch of its span.
    - ``peer``, ``number``: the rank at the other end of a message, and which message it is of all those from the
      sender to the receiver, from 0.
    - ``tensor``: what a message carries, if the trace says so: ``ACTIVATION`` or ``GRADIENT``; else empty.
    - ``group``: the number of the collective's group. Its collectives follow one another; ``number`` counts them.
    - ``size_bytes``: the size of a message, or of what each rank of its group puts into a collective.
    """

    kind: WorkKind
    after: tuple[int, ...] = ()
    duration_ns: int = 0
    span: str = ""
    microbatch: int = NO_MICROBATCH
    peer: int = -1
    number: int = -1
    group: int = -1
    size_bytes: int = 0
    tensor: str = ""


@dataclass(frozen=True)
class ReplayedTrace:
    """The graphs of all ranks, by rank, and the ranks of each group that has collectives.

    ``digest`` identifies the files that the trace was read from.
    """

    ranks: tuple[tuple[TraceNode, ...], ...]
    groups: tuple[tuple[int, ...], ...]
    digest: str

    @property
    def pairs(self) -> set[tuple[int, int]]:
        """The ranks that send to each other, the lower one first."""
        return {
            (min(rank, node.peer), max(rank, node.peer))
            for rank, nodes in enumerate(self.ranks)
            for node in nodes
            if node.kind is WorkKind.SEND
        }

    def collective(self, node: TraceNode) -> RingCollective:
        """Return what a collective's group does together."""
        return RingCollective(node.span, node.size_bytes, len(self.groups[node.group]))

    def computing_ns(self, rank: int) -> int:
        """Return how long all computations of a rank take, one after the other."""
        return sum(node.duration_ns for node in self.ranks[rank])
