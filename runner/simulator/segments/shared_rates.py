"""Share the rates of trunks and ports between the lanes that cross them."""

from collections.abc import Sequence


class LaneCapacity:
    """A trunk or a port: its capacity, and until when each lane that crosses it has packets for it."""

    __slots__ = ("_busy_ns", "_capacity_bps")

    def __init__(self, capacity_bps: int) -> None:
        self._capacity_bps = capacity_bps
        self._busy_ns: list[int] = []

    def enter(self) -> int:
        """Add a lane. Return its number."""
        self._busy_ns.append(-1)
        return len(self._busy_ns) - 1

    def share_bps(self, lane: int, time_ns: int) -> int:
        """Return the rate of a lane that sends at ``time_ns``: an equal share between those that send then."""
        busy_ns = self._busy_ns
        if len(busy_ns) == 1:
            return self._capacity_bps
        senders = 1 + sum([until_ns > time_ns for until_ns in busy_ns]) - (busy_ns[lane] > time_ns)
        return max(self._capacity_bps // senders, 1)

    def busy_until(self, lane: int, until_ns: int) -> None:
        """Handle that a lane sends until then."""
        self._busy_ns[lane] = until_ns


class LaneRate:
    """The rate of one lane: at most ``own_bps`` (None for no limit), and its share of everything in ``shared``."""

    __slots__ = ("_own_bps", "_shared")

    def __init__(self, own_bps: int | None, shared: Sequence[LaneCapacity] = ()) -> None:
        self._own_bps = own_bps
        self._shared = [(each, each.enter()) for each in shared]

    def rate_bps(self, time_ns: int) -> int | None:
        """Return the rate of a packet that reaches the line at ``time_ns``, None for no limit."""
        rate_bps = self._own_bps
        for each, lane in self._shared:
            share_bps = each.share_bps(lane, time_ns)
            if rate_bps is None or share_bps < rate_bps:
                rate_bps = share_bps
        return rate_bps

    def busy_until(self, until_ns: int) -> None:
        """Handle that the lane sends until then."""
        for each, lane in self._shared:
            each.busy_until(lane, until_ns)
