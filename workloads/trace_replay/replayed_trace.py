"""A replayed trace: what every rank does in one iteration, what waits for what, and how far a rank has come.

The progress of a rank has no clock: both engines use it alike.

Collectives are made of the steps of a ring all-reduce, whose first half is a reduce-scatter and whose second half is an
all-gather. Of n bytes over P ranks a half sends ``(P-1)/P n`` from each rank to the next one, in P-1 steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from heapq import heappop, heappush
from typing import Final

from wanbed.results.records.span_log import NO_MICROBATCH

ALL_REDUCE: Final = "all_reduce"

ALL_GATHER: Final = "all_gather"

REDUCE_SCATTER: Final = "reduce_scatter"


@dataclass(frozen=True)
class RingCollective:
    """A collective of ``replicas`` ranks, each of which puts ``input_bytes`` into it.

    ``kind`` is ALL_REDUCE, ALL_GATHER or REDUCE_SCATTER.
    """

    kind: str
    input_bytes: int
    replicas: int

    @property
    def whole_bytes(self) -> int:
        """The size of the data that the ring cuts into segments: what all ranks gather, or what each one sums."""
        return self.input_bytes * (self.replicas if self.kind == ALL_GATHER else 1)

    @property
    def is_half(self) -> bool:
        """Return whether it has half of the steps of an all-reduce."""
        return self.kind != ALL_REDUCE

    @property
    def steps(self) -> range:
        """The steps of the ring that it makes, numbered as those of an all-reduce."""
        half = self.replicas - 1
        return range(half if self.kind == ALL_GATHER else 0, half if self.kind == REDUCE_SCATTER else 2 * half)


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


class RankGraph:
    """One rank's nodes, and which ones wait for each of them."""

    def __init__(self, nodes: Sequence[TraceNode]) -> None:
        self.nodes = tuple(nodes)
        self.followers: list[list[int]] = [[] for _ in self.nodes]
        for position, node in enumerate(self.nodes):
            for earlier in node.after:
                self.followers[earlier].append(position)

    @cached_property
    def awaited(self) -> list[int]:
        """The number of nodes that each node waits for."""
        return [len(node.after) for node in self.nodes]

    @cached_property
    def receives(self) -> dict[tuple[int, int], int]:
        """The position of the receive of each message, by sender and number."""
        return {
            (node.peer, node.number): position
            for position, node in enumerate(self.nodes)
            if node.kind is WorkKind.RECEIVE
        }


class RankProgress:
    """The nodes of a rank's graph that have ended, and those that may begin.

    Call ``ended`` for every send, collective and computation that has ended, and ``arrived`` for every message. The
    caller lets a GPU and a CPU each run one computation at a time.
    """

    def __init__(self, graph: RankGraph) -> None:
        self._graph = graph
        self._awaited = list(graph.awaited)
        self._left = len(graph.nodes)
        self._ready: dict[WorkKind, list[int]] = {kind: [] for kind in WorkKind}
        self._posted: set[int] = set()
        self._arrived: set[int] = set()
        self._over: set[int] = set()
        self._make_ready([position for position, count in enumerate(self._awaited) if not count])

    @property
    def complete(self) -> bool:
        """Return whether all nodes have ended."""
        return not self._left

    @property
    def left(self) -> int:
        """The number of nodes that have not ended."""
        return self._left

    @property
    def first_waiting(self) -> int:
        """The first node that has not ended and that no other node of this rank holds up. There must be one left."""
        began = (position for position, count in enumerate(self._awaited) if not count and position not in self._over)
        return min(began)

    def next_of(self, kind: WorkKind) -> int | None:
        """Return the position of a node of that kind to begin now, the lowest of several; None if there is none."""
        ready = self._ready[kind]
        return heappop(ready) if ready else None

    def ended(self, position: int) -> None:
        """Record that a node has ended."""
        self._make_ready(self._freed_by(position))

    def arrived(self, sender: int, number: int) -> None:
        """Record that all of a message has arrived."""
        position = self._graph.receives[sender, number]
        if position in self._posted:
            self.ended(position)
        else:
            self._arrived.add(position)

    def _freed_by(self, position: int) -> list[int]:
        """Record the end of a node, and return the nodes that waited for nothing else."""
        self._left -= 1
        self._over.add(position)
        freed = []
        for follower in self._graph.followers[position]:
            self._awaited[follower] -= 1
            if not self._awaited[follower]:
                freed.append(follower)
        return freed

    def _make_ready(self, positions: list[int]) -> None:
        found = list(positions)
        while found:
            position = found.pop()
            kind = self._graph.nodes[position].kind
            if kind is WorkKind.NOTHING or (kind is WorkKind.RECEIVE and position in self._arrived):
                found += self._freed_by(position)
            elif kind is WorkKind.RECEIVE:
                self._posted.add(position)
            else:
                heappush(self._ready[kind], position)
