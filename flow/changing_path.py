"""Model a path whose link changes: its lines and capacities at any time, and when TCP goes on after an outage.

Linux sends the first unacknowledged segment again when the retransmission timer expires, and nothing else until that is
acknowledged (RFC 6298; ``tcp_retransmit_timer`` in net/ipv4/tcp_timer.c). So a transfer goes on with the first
retransmission that the link, up again, delivers, which may be long after the outage has ended.

- Two round trips and two ticks after the last acknowledgement, or after the first byte that follows it, a probe is sent
  (``tcp_schedule_loss_probe``). The first timeout is an RTT + 200 ms (``TCP_RTO_MIN``, with the variation of round
  trips) after the probe, with which the timer starts anew (``tcp_send_loss_probe``).
- Each further timeout is twice as long, at most 120 s (``TCP_RTO_MAX``). After 924.6 s the kernel gives up
  (``tcp_retries2`` = 15, ``tcp_model_timeout``).
- Timers count ticks. A timer of 63 ticks or more is late by up to 8, of 504 or more by up to 64, and so on: that much
  coarser are the levels of the kernel's timer wheel (``calc_index`` in kernel/time/timer.c). Here each is late by the
  mean.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.ground.errors import SimulationError
from wanbed.testbed.network.ethernet import MTU_BYTES
from wanbed.testbed.network.links.wan_link import Change, LinkConditions, LinkCourse

UNLIMITED_BPS: Final = 10**15
"""The capacity of a link that has no rate for a time: a gigabyte takes 8 us."""


def constant(conditions: LinkConditions) -> LinkCourse:
    """Return the course of a direction that does not change."""
    return LinkCourse((Change(0, conditions),))


def next_change_ns(course: LinkCourse, after_ns: int) -> int | None:
    """Return when the course changes next, later than ``after_ns``, None if never."""
    changes, period_ns = course.changes, course.period_ns
    if len(changes) == 1:
        return None
    begin_ns = 0 if period_ns is None else after_ns // period_ns * period_ns
    position = bisect_right(changes, after_ns - begin_ns, key=_at_ns)
    if position < len(changes):
        return begin_ns + changes[position].at_ns
    return None if period_ns is None else begin_ns + period_ns


def pair_bps(conditions: LinkConditions) -> int:
    """Return the capacity of a node pair."""
    rate_bps = conditions.pair_rate_bps
    return UNLIMITED_BPS if rate_bps is None else rate_bps


def trunk_bps(conditions: LinkConditions) -> int:
    """Return the capacity of the trunk."""
    return UNLIMITED_BPS if conditions.rate_bps is None else conditions.rate_bps


@dataclass(frozen=True)
class ChangingPath:
    """The courses of both directions of a link, as a sender sees them: its bytes go ``there``, acknowledgements back.

    ``port_bps`` is the rate of the port at which bytes arrive. ``headers`` and ``mtu_bytes`` are those of ``Line``.
    """

    there: LinkCourse
    back: LinkCourse
    port_bps: int | None
    headers: bool
    mtu_bytes: int = MTU_BYTES

    @property
    def fails(self) -> bool:
        """Tell whether one of the directions is ever down."""
        return any(not each.up for course in (self.there, self.back) for each in course.distinct)

    @property
    def pair_range_bps(self) -> tuple[int, int]:
        """The least and the largest capacity that a node pair ever has."""
        rates_bps = [pair_bps(conditions) for conditions in self.there.distinct]
        return min(rates_bps), max(rates_bps)

    @property
    def trunk_range_bps(self) -> tuple[int, int] | None:
        """The least and the largest capacity that the trunk ever has, None if it never has a limit."""
        if all(conditions.rate_bps is None for conditions in self.there.distinct):
            return None
        rates_bps = [trunk_bps(conditions) for conditions in self.there.distinct]
        return min(rates_bps), max(rates_bps)

    def line(self, at_ns: int) -> Line:
        """Return the line as it is at that time, unshared: with the rate of the narrowest resource that it crosses."""
        there, back = self.there.at(at_ns), self.back.at(at_ns)
        rates = [rate_bps for rate_bps in (there.pair_rate_bps, self.port_bps) if rate_bps is not None]
        return Line(min(rates, default=None), there.latency_ns, self.headers, back.latency_ns, self.mtu_bytes)

    def next_change_ns(self, after_ns: int) -> int | None:
        """Return when one of the directions changes next, None if never."""
        times_ns = [next_change_ns(course, after_ns) for course in (self.there, self.back)]
        return min((time_ns for time_ns in times_ns if time_ns is not None), default=None)

    def is_up(self, at_ns: int) -> bool:
        """Return whether what is sent then arrives."""
        return self.there.at(at_ns).up

    def answers(self, credit_ns: int) -> bool:
        """Return whether an acknowledgement that would come at ``credit_ns`` comes."""
        sent_ns = credit_ns - self.back.at(credit_ns).latency_ns
        return self.back.at(sent_ns).up

    def up_ns(self, from_ns: int) -> int | None:
        """Return the first time, not before ``from_ns``, at which what is sent arrives; None if never again."""
        for _ in range(len(self.there.changes) + 1):
            if self.is_up(from_ns):
                return from_ns
            after_ns = next_change_ns(self.there, from_ns)
            if after_ns is None:
                return None
            from_ns = after_ns
        return None


def _at_ns(change: Change) -> int:
    return change.at_ns


class CapacityCourse:
    """The capacity of one resource over time: ``bps_of`` the conditions of ``course``, given to ``change``.

    What waits when the capacity changes leaves at the new one. Its queue stands at the link's far end, as in the kernel
    (``wanbed.testbed.network.pair_rates``). So a change counts for what left a latency ago.
    """

    def __init__(
        self,
        events: EventQueue,
        course: LinkCourse,
        bps_of: Callable[[LinkConditions], int],
        change: Callable[[int, int], None],
        is_sending: Callable[[], bool],
    ) -> None:
        self._events = events
        self._course = course
        self._bps_of = bps_of
        self._change = change
        self._is_sending = is_sending
        self._met_ns = 0
        self._next_ns = next_change_ns(course, 0)
        self._armed = False

    def wake(self, now_ns: int) -> None:
        """Handle that something begins to send: have the present capacity, and follow the course from now on."""
        if self._armed or self._next_ns is None:
            return
        if self._due_ns(self._next_ns) <= now_ns:
            while (next_ns := self._next_ns) is not None and self._due_ns(next_ns) <= now_ns:
                self._meet(next_ns)
            self._give(now_ns)
        self._arm()

    def _due_ns(self, at_ns: int) -> int:
        return at_ns - self._course.at(at_ns - 1).latency_ns

    def _meet(self, at_ns: int) -> None:
        self._met_ns = at_ns
        self._next_ns = next_change_ns(self._course, at_ns)

    def _give(self, now_ns: int) -> None:
        self._change(self._bps_of(self._course.at(self._met_ns)), now_ns)

    def _arm(self) -> None:
        if self._next_ns is not None:
            self._armed = True
            due_ns = max(self._due_ns(self._next_ns), self._events.now_ns)
            self._events.at(due_ns, self._change_due, self._next_ns)

    def _change_due(self, now_ns: int, at_ns: int) -> None:
        self._armed = False
        self._meet(at_ns)
        self._give(now_ns)
        if self._is_sending():
            self._arm()


_MOST_TIMEOUT_NS: Final = 120_000_000_000
_GIVES_UP_NS: Final = 924_600_000_000

_TICK_NS: Final = 10_000_000
"""The tick of a kernel's clock at 100 Hz, as in virtual time."""

_PROBE_TICKS: Final = 2
_LEVEL_TICKS: Final = 63
_LEVEL_BITS: Final = 3


def late_ticks(ticks: int) -> float:
    """Return by how many ticks a timer of that many is late on average."""
    granularity, most = 1, _LEVEL_TICKS
    while ticks >= most:
        granularity, most = granularity << _LEVEL_BITS, most << _LEVEL_BITS
    # A timer begins within a tick, and expires with the first step of its level that is later.
    return granularity / 2 if granularity == 1 else (granularity + 1) / 2


@dataclass(frozen=True)
class Retransmission:
    """The timers of a connection over ``path``. ``dilation`` is by how much time is dilated, which timers are not."""

    path: ChangingPath
    dilation: float = 1.0

    def mirrored(self) -> Retransmission:
        """Return the timers of the other direction."""
        path = self.path
        return Retransmission(replace(path, there=path.back, back=path.there), self.dilation)

    def resumes_ns(self, first_ns: int, acknowledged_ns: int, timeout_ns: int, rtt_ns: int) -> int:
        """Return when the retransmission is sent that arrives, and whose acknowledgement does.

        ``first_ns`` is when the first byte left that is not acknowledged, ``acknowledged_ns`` when the last
        acknowledgement came. Raise SimulationError if the kernel gives up before.
        """
        tick_ns, path = _TICK_NS / self.dilation, self.path
        timeout_ticks = -int(-timeout_ns // tick_ns)
        ticks = min(-int(-2 * rtt_ns // tick_ns) + _PROBE_TICKS, timeout_ticks)
        begin_ns = at_ns = max(first_ns, acknowledged_ns) + round((ticks + late_ticks(ticks)) * tick_ns)
        ticks = timeout_ticks
        while not (path.is_up(at_ns) and path.back.at(at_ns + path.there.at(at_ns).latency_ns).up):
            if at_ns - begin_ns > _GIVES_UP_NS / self.dilation:
                raise SimulationError(
                    f"a link is down from {first_ns / 1e9:.3g} s on for longer than TCP sends again, "
                    f"{_GIVES_UP_NS / 1e9:g} s: its connections end, and training with them. Let the link come back"
                )
            at_ns += round((ticks + late_ticks(ticks)) * tick_ns)
            ticks = min(2 * ticks, int(_MOST_TIMEOUT_NS // _TICK_NS))
        return at_ns
