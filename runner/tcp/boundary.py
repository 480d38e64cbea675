"""Model TCP for a schedule that is planned ahead: successive transfers over a stage boundary, window by window.

The windows are those of the simulator, so that a plan and its simulation agree on the time of a transfer.
"""

from dataclasses import dataclass

from wanbed.runner.tcp.channel import PrivateChannel
from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.flow_model.striping import Striping
from wanbed.testbed.network.flow_model.window import opened
from wanbed.testbed.network.tcp_settings import TcpSettings

MOST_WINDOWS = 100
"""A transfer of at most this many windows is followed round by round. The time of a longer one is computed from the
line's rate and the windows' rate: following every round would take long, and the few rounds in which windows open add
little."""


@dataclass(frozen=True)
class BoundaryTcp:
    """The TCP connections of one node pair, for transfers of one size over an unshared line.

    ``size_bytes`` is the node pair's share of a transfer, ``striping`` its distribution over the connections.
    ``settings`` are the hosts' TCP settings. ``mates_ns`` is the time of a chunk between two cell mates on either side,
    0 without temporal sharing.
    """

    line: Line
    size_bytes: int
    settings: TcpSettings
    striping: Striping
    mates_ns: int = 0

    def opened(self) -> "OpenBoundary":
        """Return newly opened connections."""
        return OpenBoundary(self)

    @property
    def cold_ns(self) -> int:
        """The time of the first transfer on new connections, until its last byte has arrived."""
        return self.opened().send(0)[1]


class OpenBoundary:
    """The state of the connections of one direction of a boundary."""

    def __init__(self, tcp: BoundaryTcp) -> None:
        self._tcp = tcp
        self._channel = PrivateChannel(tcp.line, opened(tcp.line, tcp.striping.connections, tcp.settings))

    def send(self, ready_ns: int) -> tuple[int, int]:
        """Send the next transfer after the previous ones. Return when its last byte has left, and when it arrives."""
        tcp = self._tcp
        _, whole_ns = self._channel.transmit(ready_ns + tcp.mates_ns, tcp.size_bytes, tcp.striping)
        return self._channel.free_ns, whole_ns + tcp.line.latency_ns + tcp.mates_ns
