"""Serialise what the connections of one node pair send, first come, first served.

Both kinds of lane report once when a piece's first and last byte leave. A lane whose rate nobody else uses knows it at
once. The rate of a shared lane depends on other node pairs (``wanbed.testbed.relay.model.shared_rates``), so that it
reports when the piece has left.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.relay.model.timeline import Timeline

Left = Callable[[int, int], None]
"""Called once with the times (ns) at which a piece's first and last byte leave, which may be in the future."""


class RelayLane(Protocol):
    """The line from one host to another. ``wire_bytes`` counts what was queued, headers included."""

    line: Line
    wire_bytes: int

    def queue(self, now_ns: int, size_bytes: int, left: Left) -> None:
        """Queue a piece of ``size_bytes`` of payload, 0 for the end of a connection."""

    def wait_ns(self, now_ns: int) -> int:
        """Return how long a byte that is queued now waits for those before it."""


class OwnLane:
    """A lane with a rate of its own, or with none."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.wire_bytes = 0
        self._free_ns = 0

    def queue(self, now_ns: int, size_bytes: int, left: Left) -> None:
        """Queue a piece; ``left`` is called at once."""
        self.wire_bytes += self.line.wire_bytes(size_bytes)
        start_ns = max(now_ns, self._free_ns)
        self._free_ns = start_ns + self.line.duration_ns(size_bytes)
        left(start_ns, self._free_ns)

    def wait_ns(self, now_ns: int) -> int:
        """Return how long the line is still busy."""
        return max(self._free_ns - now_ns, 0)


class Sharing(Protocol):
    """The division of shared rates among the lanes that send."""

    def begin(self, lane: "SharedLane", now_ns: int) -> None:
        """Set the rate of ``lane``, which begins to send, and of all lanes that this slows down."""

    def end(self, lane: "SharedLane", now_ns: int) -> None:
        """Handle that ``lane`` has nothing to send any more."""


class SharedLane:
    """A lane that crosses ``resources``, by number, which other lanes cross too. ``most_bps`` is its rate if alone."""

    def __init__(self, line: Line, resources: tuple[int, ...], sharing: Sharing, timeline: Timeline) -> None:
        assert line.rate_bps is not None
        self.line = line
        self.resources = resources
        self.most_bps = line.rate_bps
        self.wire_bytes = 0
        self._sharing = sharing
        self._timeline = timeline
        self._waiting: deque[tuple[int, Left]] = deque()
        self._waiting_bytes = 0
        self._rate_bps = 0
        self._since_ns = 0
        self._first_ns = 0
        self._head_bytes = 0.0
        self._change = 0

    def queue(self, now_ns: int, size_bytes: int, left: Left) -> None:
        """Queue a piece; ``left`` is called when it has left."""
        self.wire_bytes += self.line.wire_bytes(size_bytes)
        if not self._waiting and not size_bytes:
            left(now_ns, now_ns)
            return
        self._waiting.append((size_bytes, left))
        self._waiting_bytes += size_bytes
        if len(self._waiting) == 1:
            # A piece may be let out in the past of an event that has been handled already.
            now_ns = max(now_ns, self._since_ns)
            self._begin_head(now_ns)
            self._rate_bps = 0
            self._sharing.begin(self, now_ns)

    def wait_ns(self, now_ns: int) -> int:
        """Return how long the queued bytes still take at the current rate."""
        if not self._waiting:
            return 0
        behind = self._waiting_bytes - self._waiting[0][0]
        left_bytes = max(self._head_bytes, 0.0) + behind
        gone_ns = max(now_ns - self._since_ns, 0)
        return max(self.line.duration_ns(int(left_bytes), self._rate_bps or self.most_bps) - gone_ns, 0)

    def send_at(self, rate_bps: int, now_ns: int) -> None:
        """Send at ``rate_bps`` from now on."""
        if rate_bps == self._rate_bps:
            return
        self._progress(now_ns)
        self._rate_bps = rate_bps
        self._await_head()

    def _begin_head(self, now_ns: int) -> None:
        self._first_ns = self._since_ns = now_ns
        self._head_bytes = float(self._waiting[0][0])

    def _progress(self, now_ns: int) -> None:
        if self._rate_bps:
            per_byte_ns = self.line.duration_ns(1_000_000, self._rate_bps) / 1e6
            self._head_bytes -= max(now_ns - self._since_ns, 0) / per_byte_ns
        self._since_ns = max(now_ns, self._since_ns)

    def _await_head(self) -> None:
        self._change += 1
        change = self._change
        end_ns = self._since_ns + self.line.duration_ns(max(round(self._head_bytes), 0), self._rate_bps)
        self._timeline.at(end_ns, lambda time_ns: self._end_head(time_ns, change))

    def _end_head(self, now_ns: int, change: int) -> None:
        if change != self._change:
            return
        size_bytes, left = self._waiting.popleft()
        self._waiting_bytes -= size_bytes
        first_ns = self._first_ns
        if self._waiting:
            self._begin_head(now_ns)
            self._await_head()
        else:
            self._change += 1
            self._since_ns = now_ns
            self._sharing.end(self, now_ns)
        left(first_ns, now_ns)
