"""Follow an all-reduce whose pieces go one by one: what has come, what has been accepted, and when it is over."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from wanbed.runner.simulator.rings.ring_all_reduce import Done

Piece = TypeVar("Piece")


class PieceRound(ABC, Generic[Piece]):
    """One all-reduce of ``len(missing)`` positions: how many pieces each has to receive, and those that came too early.

    A position has the result when it has used all its pieces and the kernel has accepted all that it sends.
    """

    def __init__(self, missing: list[int]) -> None:
        count = len(missing)
        self.joined = 0
        self._missing = missing
        self._unaccepted = [0] * count
        self._ready_ns = [-1] * count
        self._done: list[Done | None] = [None] * count
        self._early: list[list[Piece]] = [[] for _ in missing]

    def join(self, position: int, now_ns: int, done: Done) -> None:
        """Handle that the replica at ``position`` is ready."""
        self.joined += 1
        self._ready_ns[position], self._done[position] = now_ns, done
        self._begin(position, now_ns)
        for piece in self._early[position]:
            self._use(position, piece, now_ns)
        self._end(position, now_ns)

    def received(self, position: int, piece: Piece, now_ns: int) -> None:
        """Handle that a position has received a piece."""
        if self._ready_ns[position] < 0:
            self._early[position].append(piece)
        else:
            self._use(position, piece, now_ns)

    def accepted(self, now_ns: int, position: int) -> None:
        """Handle that the kernel has accepted a piece that a position sends."""
        self._unaccepted[position] -= 1
        self._end(position, now_ns)

    def _end(self, position: int, now_ns: int) -> None:
        done = self._done[position]
        if done is not None and not self._missing[position] and not self._unaccepted[position]:
            self._done[position] = None
            done(self._ready_ns[position], now_ns)

    @abstractmethod
    def _begin(self, position: int, now_ns: int) -> None:
        """Send what a position that is ready has to send without having received anything."""

    @abstractmethod
    def _use(self, position: int, piece: Piece, now_ns: int) -> None:
        """Handle that a position that is ready has a piece, and ``_end`` it."""


class PieceRounds(Generic[Piece]):
    """The all-reduces of one stage that are under way, each of which ``begin`` makes."""

    def __init__(self, positions: int, begin: Callable[[], PieceRound[Piece]]) -> None:
        self._positions, self._begin = positions, begin
        self._under_way: dict[int, PieceRound[Piece]] = {}

    def join(self, iteration: int, position: int, now_ns: int, done: Done) -> None:
        """Join as in any ``Ring``."""
        current = self._under_way.get(iteration)
        if current is None:
            current = self._under_way[iteration] = self._begin()
        current.join(position, now_ns, done)
        if current.joined == self._positions:
            # Pending events still refer to it.
            del self._under_way[iteration]
