"""Model TCP for a plan made ahead: transfers over a stage boundary, one after the other, window by window.

The windows are the simulator's own, so that a plan and its simulation agree on what a transfer takes.
"""

from dataclasses import dataclass

from runner.tcp.channel import PrivateChannel
from runner.tcp.line import Line
from runner.tcp.striping import Striping
from runner.tcp.window import opened
from testbed.network.tcp_settings import TcpSettings

MOST_WINDOWS = 100
"""The most windows in a transfer that is followed round by round. A longer one is priced by its rate and by the
windows' rate: following every round would take long, and the few rounds in which windows open add little to it."""


@dataclass(frozen=True)
class BoundaryTcp:
    """The TCP connections of one node pair, for transfers of one size over a line of its own.

    ``size_bytes`` is the pair's share of a transfer, dealt as ``dealing`` says; ``settings`` are those of
    the hosts' TCP. ``mates_ns`` is what a chunk takes from one
    sweep point mate to the next, on either side: 0 where nothing is shared.
    """

    line: Line
    size_bytes: int
    settings: TcpSettings
    striping: Striping
    mates_ns: int = 0

    def opened(self) -> "OpenBoundary":
        """Return the connections as they are when they have just been opened."""
        return OpenBoundary(self)

    @property
    def cold_ns(self) -> int:
        """The time that the first transfer takes, until all of it has arrived."""
        return self.opened().send(0)[1]


class OpenBoundary:
    """The connections of one direction of a boundary, with their state."""

    def __init__(self, tcp: BoundaryTcp) -> None:
        self._tcp = tcp
        self._channel = PrivateChannel(tcp.line, opened(tcp.line, tcp.striping.connections, tcp.settings))

    def send(self, ready_ns: int) -> tuple[int, int]:
        """Send the next transfer, behind those before it; return when it has left, and when all of it has arrived."""
        tcp = self._tcp
        _, whole_ns = self._channel.transmit(ready_ns + tcp.mates_ns, tcp.size_bytes, tcp.striping)
        return self._channel.free_ns, whole_ns + tcp.line.latency_ns + tcp.mates_ns
