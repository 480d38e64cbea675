"""Keep idle TCP connections warm, so that none starts slowly again after a pause, without any right on its host.

Linux halves a congestion window for every retransmission timeout that a connection has sent nothing in
(``tcp_slow_start_after_idle_check``), down to that of a new connection. A timeout is the round trip and 200 ms at
least. Sending a few bytes before that is enough: the window is not lowered for being used so little either
(``tcp_cwnd_validate``), because the acknowledgement of any data sets back the time from which that is counted
(``tcp_cong_avoid``).
"""

from collections.abc import Iterable, Iterator

from wanbed.workloads.transport.link import Connection, Link
from wanbed.workloads.transport.peer import Peer

KEEP_WARM_NS = 150_000_000
"""A connection sends something after so long. A thread may be late by the rest of the 200 ms, and by a round trip."""
_TOGETHER_NS = 10_000_000
"""Connections that would be due so soon send now too, so that the thread wakes up once for all of them."""


class WarmConnections:
    """Find those connections to ``peers`` that have to be kept warm now.

    A connection is kept warm once it has sent a payload, to a peer with ``keep_warm``.
    """

    def __init__(self, peers: Iterable[Peer]) -> None:
        self._keeps = any(peer.keep_warm for peer in peers)
        self._due_ns = 0

    def timeout_s(self, now_ns: int) -> float | None:
        """Return for how long the I/O thread may wait until it looks for cooling connections again, None for ever."""
        return max(0.0, (self._due_ns - now_ns) / 1e9) if self._keeps else None

    def cooling(self, links: Iterable[Link], now_ns: int) -> Iterator[tuple[Link, Connection]]:
        """Yield the connections that have to send something now, at most once in a while.

        Each is ``cooling`` until the next one is asked for.
        """
        if not self._keeps or now_ns < self._due_ns:
            return
        self._due_ns = now_ns + KEEP_WARM_NS
        for link in links:
            if not link.peer.keep_warm or link.ending:
                continue
            for connection in link.connections:
                if connection.last_sent_ns is None or connection.sending:
                    continue
                due_ns = connection.last_sent_ns + KEEP_WARM_NS
                if due_ns > now_ns + _TOGETHER_NS:
                    self._due_ns = min(self._due_ns, due_ns)
                    continue
                connection.cooling = True
                yield link, connection
                connection.cooling = False
