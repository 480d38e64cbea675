"""Simulate Gloo's ring all-reduce chunk by chunk, as ``wanbed.workloads.transport.gloo_sum`` has it.

A position takes its turns in order. It begins one once all before it but the last are over: their chunks have come, and
the kernel has accepted theirs. Then it announces to the position before that it waits for a chunk, and sends its own as
soon as the next position has announced the same. The all-gather begins when every turn of the reduce-scatter is over.
"""

from collections.abc import Iterator, Sequence

from wanbed.flow.channel import Channel
from wanbed.flow.event_queue import EventQueue
from wanbed.runner.simulator.rings.piece_round import PieceRound, PieceRounds
from wanbed.runner.simulator.rings.ring_hops import RingHops
from wanbed.workloads.transport.gloo_sum import Turn, gloo_cut, gloo_turns
from wanbed.workloads.transport.links_config import ANNOUNCED_AT_ONCE


class GlooRing:
    """The replicas of one stage, in the ring's order. ``channels[i]`` leads from position i to the next one.

    ``connections`` and ``backs`` are as ``RingHops`` has them.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        connections: Sequence[int],
        size_bytes: int,
        events: EventQueue,
        backs: Sequence[Channel | None],
    ) -> None:
        count = len(channels)
        cut = gloo_cut(size_bytes, 1, count)
        hops: RingHops[int] = RingHops(channels, connections, events, backs, room=0, chunk_bytes=cut.chunk_bytes)
        turns = [gloo_turns(cut, position) for position in range(count)]
        self.join = PieceRounds(count, lambda: _Round(hops, turns)).join


class _Round(PieceRound[int]):
    """Pieces are the numbers of turns: a chunk is received in the turn in which the position before sends it."""

    def __init__(self, hops: RingHops[int], turns: Sequence[tuple[Sequence[Turn], Sequence[Turn]]]) -> None:
        self._hops, self._a_pass = hops, len(turns[0][0])
        self._turns = [[*scatter, *gather] for scatter, gather in turns]
        super().__init__([sum(turn.receives_bytes > 0 for turn in own) for own in self._turns])
        self._unaccepted = [sum(turn.sends_bytes > 0 for turn in own) for own in self._turns]
        self._open = [[(turn.receives_bytes > 0) + (turn.sends_bytes > 0) for turn in own] for own in self._turns]
        self._sending: list[Iterator[int]] = [
            (number for number, turn in enumerate(own) if turn.sends_bytes) for own in self._turns
        ]
        self._begun, self._over = [0] * len(turns), [0] * len(turns)

    def _begin(self, position: int, now_ns: int) -> None:
        """Begin all turns that may begin."""
        turns, open_ = self._turns[position], self._open[position]
        while (number := self._begun[position]) < len(turns):
            while self._over[position] < number and not open_[self._over[position]]:
                self._over[position] += 1
            if self._over[position] < number - (ANNOUNCED_AT_ONCE - 1) * (number % self._a_pass > 0):
                return
            self._begun[position] += 1
            if turns[number].receives_bytes:
                self._hops.give_room(position, 1, now_ns)
            if turns[number].sends_bytes:
                self._hops.send(self, position, number, turns[number].sends_bytes, now_ns)

    def accepted(self, now_ns: int, position: int) -> None:
        """Handle that the kernel has accepted the next chunk that a position sends."""
        self._open[position][next(self._sending[position])] -= 1
        self._begin(position, now_ns)
        super().accepted(now_ns, position)

    def _use(self, position: int, number: int, now_ns: int) -> None:
        self._missing[position] -= 1
        self._open[position][number] -= 1
        self._begin(position, now_ns)
        self._end(position, now_ns)
