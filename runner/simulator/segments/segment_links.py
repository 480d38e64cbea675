"""Create the channels over links that lose or jitter packets, with the lanes and rates that they share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from wanbed.ground.impairments import Impairments
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.segments.bbr import Bbr
from wanbed.runner.simulator.segments.cubic import Cubic
from wanbed.runner.simulator.segments.lane import Lane
from wanbed.runner.simulator.segments.receiver import Receiver
from wanbed.runner.simulator.segments.segment_channel import SegmentChannel
from wanbed.runner.simulator.segments.sender import SegmentSender
from wanbed.runner.simulator.segments.shared_rates import LaneCapacity, LaneRate
from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.flow_model.window import let_out_bytes
from wanbed.testbed.network.tcp_settings import TcpSettings

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
