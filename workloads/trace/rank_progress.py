"""The progress of one rank through one iteration of its trace. It has no clock: both engines use it alike."""

from collections.abc import Sequence
from functools import cached_property
from heapq import heappop, heappush

from wanbed.workloads.trace.replayed_trace import TraceNode, WorkKind


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
        """Whether all nodes have ended."""
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
