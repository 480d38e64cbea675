"""Simulate a channel over links that lose or jitter packets, segment by segment.

Its chunks go over whichever of its connections has room first. Channels share the lanes and the rates of their links.
"""

from array import array
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from wanbed.ground.impairments import Impairments
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.segments.congestion_control import Bbr, Cubic
from wanbed.runner.simulator.segments.lane import Lane, LaneCapacity, LaneRate
from wanbed.runner.simulator.segments.receiver import Receiver
from wanbed.runner.simulator.segments.sender import SegmentSender
from wanbed.runner.tcp.channel import Accepted, Left
from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.flow_model.striping import Striping
from wanbed.testbed.network.flow_model.window import let_out_bytes
from wanbed.testbed.network.tcp_settings import TcpSettings


class _Transfer:
    """A queued transfer: the arguments of ``Channel.queue``, and what has become of its chunks."""

    __slots__ = ("accepted", "available_ns", "chunks", "first_ns", "last_ns", "left", "size_bytes", "unbegun", "whole")

    def __init__(self, available_ns: int, size_bytes: int, chunks: int, left: Left, accepted: Accepted | None) -> None:
        self.available_ns, self.size_bytes = available_ns, size_bytes
        self.left, self.accepted = left, accepted
        self.chunks = self.unbegun = self.whole = chunks
        self.first_ns = self.last_ns = -1


class SegmentChannel:
    """A ``Channel`` over connections that are followed segment by segment.

    As in the transport, a connection begins a chunk when the socket has room, the longest unused connection first. A
    transfer is there when each of its chunks is there, in the order of its connection.
    """

    def __init__(self, events: EventQueue, line: Line) -> None:
        self.line = line
        self.history = array("q")
        self._events = events
        self._senders: list[SegmentSender] = []
        self._ends: dict[SegmentSender, deque[tuple[int, _Transfer]]] = {}
        self._waiting: deque[_Transfer] = deque()
        self._begun = 0

    def add(self, sender: SegmentSender) -> None:
        """Add a connection."""
        self._senders.append(sender)
        self._ends[sender] = deque()

    def arrival_ns(self, left_ns: int) -> int:
        """Return when a byte arrives that has left at that time, jitter apart."""
        return left_ns + self.line.latency_ns

    def report_ns(self, now_ns: int) -> int:
        """Return when the sender knows what the receiver reports now."""
        return now_ns + self.line.return_ns

    def queue(
        self,
        available_ns: int,
        size_bytes: int,
        left: Left,
        striping: Striping | None = None,
        *,
        accepted: Accepted | None = None,
        at_once: bool = True,
    ) -> None:
        """Queue a transfer as ``Channel.queue`` says. ``left`` is called when its last missing segment is sent."""
        chunks = 1 if striping is None else max(min(striping.chunks, size_bytes), 1)
        transfer = _Transfer(available_ns, size_bytes, chunks, left, accepted)
        self._waiting.append(transfer)
        self._events.at(max(available_ns, self._events.now_ns), self._available, transfer)

    def _available(self, now_ns: int, transfer: _Transfer) -> None:
        if not transfer.size_bytes:
            self._waiting.remove(transfer)
            transfer.left(now_ns, now_ns)
            if transfer.accepted is not None:
                transfer.accepted(now_ns)
            return
        offered = True
        while offered:
            offered = False
            for sender in sorted(self._senders, key=_last_begun):
                offered = (sender.has_room and self._begin_chunk(sender, now_ns)) or offered
        for sender in self._senders:
            sender.push(now_ns)

    def refill(self, sender: SegmentSender, now_ns: int) -> None:
        """Let a connection begin the next chunks, as many as there are and as its socket has room for."""
        while sender.has_room and self._begin_chunk(sender, now_ns):
            pass

    def _begin_chunk(self, sender: SegmentSender, now_ns: int) -> bool:
        """Let a connection begin the next chunk. Return False if there is none."""
        waiting = self._waiting
        if not waiting or waiting[0].available_ns > now_ns:
            return False
        transfer = waiting[0]
        number = transfer.chunks - transfer.unbegun
        size_bytes = (
            transfer.size_bytes * (number + 1) // transfer.chunks - transfer.size_bytes * number // transfer.chunks
        )
        transfer.unbegun -= 1
        if transfer.first_ns < 0:
            transfer.first_ns = now_ns
        sender.written += size_bytes
        self._begun += 1
        sender.last_begun = self._begun
        self._ends[sender].append((sender.written, transfer))
        if not transfer.unbegun:
            waiting.popleft()
            if transfer.accepted is not None:
                transfer.accepted(now_ns)
        return True

    def carried(self, from_ns: int, until_ns: int, size_bytes: int) -> None:
        """Record when the line carries bytes."""
        history, latency_ns = self.history, self.line.latency_ns
        from_ns, until_ns = from_ns - latency_ns, until_ns - latency_ns
        if history and history[-2] >= from_ns:
            history[-2] = max(until_ns, history[-2])
            history[-1] += size_bytes
        else:
            history.extend((max(from_ns, 0), until_ns, size_bytes))

    def arrived(self, sender: SegmentSender, at_ns: int, next_byte: int) -> None:
        """Handle that a connection's bytes before ``next_byte`` are all there at ``at_ns``."""
        ends = self._ends[sender]
        while ends and ends[0][0] <= next_byte:
            _, transfer = ends.popleft()
            transfer.whole -= 1
            transfer.last_ns = max(transfer.last_ns, at_ns)
            if not transfer.whole:
                left_ns = transfer.last_ns - self.line.latency_ns
                transfer.left(min(transfer.first_ns, left_ns), left_ns)


def _last_begun(sender: SegmentSender) -> int:
    return sender.last_begun


_OWN: Final = "node_pair"


@dataclass(frozen=True)
class Way:
    """One direction between two hosts: what impairs it, and the capacities (bit/s) of what it crosses, by name."""

    source: str
    destination: str
    latency_ns: int
    impairments: Impairments
    crossed: Mapping[tuple[str, str, str], int]


class SegmentLinks:
    """The lanes of all node pairs whose packets are lost or jittered. ``seed`` determines all draws."""

    def __init__(self, events: EventQueue, seed: str) -> None:
        self._events, self._seed = events, seed
        self._shared: dict[tuple[str, str, str], LaneCapacity] = {}
        self._lanes: dict[tuple[str, str], Lane] = {}

    def channel(
        self, line: Line, connections: int, tcp: TcpSettings, *, unsent_bytes: int, forth: Way, back: Way
    ) -> SegmentChannel:
        """Return a channel over newly opened connections, each of which may hold ``unsent_bytes``."""
        channel = SegmentChannel(self._events, line)
        for number in range(connections):
            seed = f"{self._seed} {forth.source} {forth.destination} {number}"
            sender = SegmentSender(
                self._events,
                channel,
                Bbr(line.rtt_ns, seed) if tcp.congestion == "bbr" else Cubic(is_reno=tcp.congestion == "reno"),
                self._lane(forth),
                most_bytes=let_out_bytes(tcp.window_bytes),
                unsent_bytes=unsent_bytes,
                restarts=tcp.restarts_after_idle,
            )
            receiver = Receiver(self._events, self._lane(back), sender.acknowledged, _arrival(channel, sender))
            sender.connect(receiver)
            channel.add(sender)
        return channel

    def _lane(self, way: Way) -> Lane:
        hosts = way.source, way.destination
        lane = self._lanes.get(hosts)
        if lane is None:
            lane = self._lanes[hosts] = self._opened(way)
        return lane

    def _opened(self, way: Way) -> Lane:
        own_bps = min((bps for resource, bps in way.crossed.items() if resource[0] == _OWN), default=None)
        shared = [
            self._shared.setdefault(resource, LaneCapacity(bps))
            for resource, bps in way.crossed.items()
            if resource[0] != _OWN
        ]
        return Lane(
            LaneRate(own_bps, shared),
            way.latency_ns,
            loss=way.impairments.loss,
            jitter_ns=way.impairments.jitter_ns,
            seed=f"{self._seed} {way.source} {way.destination}",
        )


def _arrival(channel: SegmentChannel, sender: SegmentSender) -> Callable[[int, int], None]:
    def arrived(at_ns: int, next_byte: int) -> None:
        channel.arrived(sender, at_ns, next_byte)

    return arrived
