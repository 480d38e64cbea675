"""What a plan made ahead is told of TCP: transfers over a stage boundary, one after the other, window by window.

The windows are the simulator's own, so that a plan and its simulation agree on what a transfer takes.
"""

from dataclasses import dataclass

from runner.simulator.dealing import Dealing, NarrowestConnection
from runner.simulator.line import Line
from runner.simulator.tcp_window import INITIAL_SEGMENTS, SEGMENT_BYTES, TcpWindow

MOST_WINDOWS = 100
"""Of a transfer. What is longer has its rate and the windows' as its price: looking at every round would take long, and
the few in which windows open are not what makes it so."""


@dataclass(frozen=True)
class BoundaryTcp:
    """The TCP connections of one node pair, for transfers of one size over a line of its own.

    ``size_bytes`` is the pair's share of a transfer, dealt as ``dealing`` says; ``window_bytes`` what one connection
    may have in flight; ``restarts`` whether it starts slowly after idle. ``mates_ns`` is what a chunk takes from one
    cell mate to the next, on either side: 0 where nothing is shared.
    """

    line: Line
    size_bytes: int
    window_bytes: int
    restarts: bool
    dealing: Dealing
    mates_ns: int = 0

    def opened(self) -> "OpenBoundary":
        """The connections as they are when they have just been opened."""
        return OpenBoundary(self)

    @property
    def cold_ns(self) -> int:
        """What the first transfer takes, until all of it is there."""
        return self.opened().send(0)[1]


class OpenBoundary:
    """One direction of a boundary, with the state of its connections."""

    def __init__(self, tcp: BoundaryTcp) -> None:
        connections, initial_bytes = tcp.dealing.connections, INITIAL_SEGMENTS * SEGMENT_BYTES
        self._tcp = tcp
        self._free_ns = 0
        self._open_bytes = tcp.line.payload_per_rtt()
        self._window = TcpWindow(
            2 * tcp.line.latency_ns,
            connections * tcp.window_bytes,
            connections * initial_bytes,
            restarts=tcp.restarts,
            narrowest=NarrowestConnection(tcp.window_bytes, initial_bytes) if connections > 1 else None,
        )

    def send(self, ready_ns: int) -> tuple[int, int]:
        """Send the next transfer, behind those before it: when it has left, and when all of it is at the other end."""
        tcp, window, line = self._tcp, self._window, self._tcp.line
        now_ns = first_ns = max(ready_ns + tcp.mates_ns, self._free_ns)
        unsent = tcp.size_bytes
        while unsent > 0:
            allowed = window.allowance(now_ns)
            openly = self._open_bytes > 0 and window.opens_for(self._open_bytes)
            if allowed <= 0 and not openly:
                now_ns = window.next_credit_ns
                continue
            part = unsent if openly else min(unsent, allowed)
            end_ns = now_ns + line.duration_ns(part)
            if openly:
                window.sent_openly(end_ns, part)
            else:
                window.sent(now_ns, end_ns, part)
            now_ns, unsent = end_ns, unsent - part
        self._free_ns = now_ns
        whole_ns = max(now_ns, first_ns + window.waits_ns(tcp.dealing, line))
        return now_ns, whole_ns + line.latency_ns + tcp.mates_ns
