"""Limit what a group of TCP connections between two hosts may send, and when: window law, slow start and restarts.

The n connections of a group are modelled together, with n times the window of one. This ignores that each connection
carries whole chunks, which ``wanbed.flow.striping`` models.

- At most ``window`` bytes are in flight, in whole pairs of segments (``let_out_bytes``). So the rate is at most
  ``window / RTT`` (Mathis et al., "The macroscopic behavior of the TCP congestion avoidance algorithm", 1997, for a
  constant window).
- Bytes sent at time t are acknowledged at t + RTT. Bytes sent without a break count as acknowledged when their first
  byte is: acknowledgements return at the rate at which the bytes left, so the next bytes find room in time.
- Acknowledgements share the line with the data of the other direction. Those due while a node pair has data queued
  leave after that data, all at once (Zhang, Shenker and Clark, "Observations on the dynamics of a congestion control
  algorithm: the effects of two-way traffic", 1991). Two directions that are full at the same time wait for each other,
  and neither fills the line.
- The congestion window opens as in ``wanbed.flow.congestion_window``. After an idle time of more
  than one retransmission timeout it restarts, unless ``slow_start_after_idle`` is off or the congestion control does
  not restart, like BBR. A timeout is RTT + 200 ms, the least that Linux adds. For a new connection it is three RTT if
  that is more, and decreases with every round (``tcp_rtt_estimator``).

There is no loss but in outages: queues hold all bytes that windows let out. If latencies change, what has left before
is acknowledged when it was to be (``TcpWindow.path_changes``).
"""

from typing import Final

from wanbed.flow.congestion_window import INITIAL_SEGMENTS, CongestionWindow, halvings
from wanbed.flow.event_queue import Event
from wanbed.flow.line import Line
from wanbed.flow.striping import Connections, Striping
from wanbed.testbed.network.tcp_settings import TcpSettings

LEAST_TIMEOUT_NS: Final = 200_000_000

_UNBOUNDED: Final = 1 << 62
BOUNDED: Final = 1 << 61
"""An allowance below this is limited by a window."""


class Delay(Event):
    """The delay of acknowledgements beyond a round trip. It is set when the other end begins to send them.

    It may be an event too: that the other end does. HyStart judges a round by ``noticed_ns`` of it.
    """

    __slots__ = ("later_ns", "noticed_ns")

    def __init__(self, later_ns: int = 0) -> None:
        self.turn = 0
        self.following = None
        self.later_ns = self.noticed_ns = later_ns


_NO_DELAY: Final = Delay()


class _Run:
    """Bytes in flight that left without a break. ``following`` left after them."""

    __slots__ = ("delay", "end_ns", "following", "limited", "size_bytes", "start_ns")

    def __init__(self, start_ns: int, end_ns: int, size_bytes: int, delay: Delay, *, limited: bool) -> None:
        self.start_ns = start_ns
        self.end_ns = end_ns
        self.size_bytes = size_bytes
        self.delay = delay
        self.limited = limited
        self.following: _Run | None = None


class TcpWindow:
    """The state of one direction. Sizes are payload bytes, times nanoseconds. None switches an effect off.

    ``window_bytes`` is a sum over all connections, and so is ``congestion``, their congestion window; it is None if
    windows are always open. A retransmission timeout is at least an RTT plus ``least_timeout_ns``. ``each`` models the
    single connections; it is None if there is only one or if windows are always open.

    Call ``allowance`` before sending and ``sent`` after sending. If the allowance is 0, call it again at
    ``next_credit_ns``. Times must not decrease.
    """

    __slots__ = (
        "_congestion",
        "_each",
        "_first",
        "_in_flight",
        "_last",
        "_last_sent_ns",
        "_least_timeout_ns",
        "_limited_until_ns",
        "_restarts",
        "_rtt_ns",
        "_variation_ns",
        "_varied_ns",
        "_waited_ns",
        "_window",
    )

    def __init__(
        self,
        rtt_ns: int,
        window_bytes: int | None,
        congestion: CongestionWindow | None,
        *,
        restarts: bool = True,
        least_timeout_ns: int = LEAST_TIMEOUT_NS,
        each: Connections | None = None,
    ) -> None:
        self._rtt_ns = rtt_ns
        self._least_timeout_ns = least_timeout_ns
        # The initial variation is twice the first round trip; each further round reduces the excess by a quarter.
        self._variation_ns = max(2 * rtt_ns, least_timeout_ns)
        self._varied_ns = 0
        self._window = _UNBOUNDED if window_bytes is None else max(window_bytes, 1)
        self._congestion = congestion
        self._restarts = restarts and congestion is not None
        # What is in flight, as a chain from the first run to the last one, which counts only if there is a first one.
        self._first: _Run | None = None
        self._last: _Run | None = None
        self._in_flight = 0
        self._last_sent_ns = 0
        self._limited_until_ns = -1
        self._waited_ns = 0
        self._each = each

    def copied(self) -> "TcpWindow":
        """Return a copy, which changes by itself."""
        copied = TcpWindow(
            self._rtt_ns,
            self._window,
            None if self._congestion is None else self._congestion.copied(),
            restarts=self._restarts,
            least_timeout_ns=self._least_timeout_ns,
            each=None if self._each is None else self._each.copied(),
        )
        run = self._first
        while run is not None:
            copied._append(_Run(run.start_ns, run.end_ns, run.size_bytes, run.delay, limited=run.limited))
            run = run.following
        copied._in_flight, copied._last_sent_ns = self._in_flight, self._last_sent_ns
        copied._variation_ns, copied._varied_ns = self._variation_ns, self._varied_ns
        copied._limited_until_ns, copied._waited_ns = self._limited_until_ns, self._waited_ns
        return copied

    def last_byte_ns(self, first_ns: int, left_ns: int, striping: Striping | None, line: Line) -> int:
        """Return when the last byte of a transfer leaves ``line``, if its first one left at ``first_ns``.

        ``left_ns`` is that time for the sum of all windows; ``striping`` is the distribution over the connections.
        """
        if self._each is None or striping is None:
            return left_ns
        waiting = self._each.waiting(striping, first_ns)
        end_ns = max(left_ns, first_ns + waiting.rounds * self._rtt_ns + line.duration_ns(waiting.burst_bytes))
        self._each.sent(striping, end_ns)
        return end_ns

    def lets_out(self, striping: Striping | None, now_ns: int) -> bool:
        """Return whether each connection lets out its chunks at once."""
        return self._each is None or striping is None or self._each.let_out(striping, now_ns)

    def opens_for(self, bytes_per_rtt: int) -> bool:
        """Return whether ``bytes_per_rtt`` can be sent in every RTT without waiting, as of the last ``allowance``."""
        return self._allowed >= bytes_per_rtt

    def sent_openly(self, end_ns: int, size_bytes: int) -> None:
        """Record bytes sent until ``end_ns`` while ``opens_for`` was true: bytes in flight did not limit them."""
        self._first = None
        self._in_flight = 0
        if self._congestion is not None:
            flown = min(self._window, self._congestion.size_bytes)
            self._congestion.grow(size_bytes, flown, 2 * self._window)
        self._last_sent_ns = end_ns

    def allowance(self, now_ns: int) -> int:
        """Return the bytes that may be sent now; ``BOUNDED`` or more if no window limits them."""
        run, rtt_ns = self._first, self._rtt_ns
        while run is not None:
            later_ns = run.delay.later_ns
            if run.start_ns + rtt_ns + later_ns > now_ns:
                break
            self._waited_ns = later_ns
            if run.start_ns >= self._varied_ns:
                self._varied_ns = run.start_ns + rtt_ns
                self._variation_ns -= (self._variation_ns - self._least_timeout_ns) // 4
            flown = self._in_flight
            self._in_flight = flown - run.size_bytes
            if self._congestion is not None:
                most_bytes = _UNBOUNDED if run.limited else 2 * flown
                left_ns = run.end_ns - run.start_ns
                held_bytes = run.size_bytes * rtt_ns // left_ns + 1 if left_ns else 0
                self._congestion.grow(run.size_bytes, flown, most_bytes, run.delay.noticed_ns, held_bytes)
            run = self._first = run.following
        if run is None:
            self._restart_if_idle(now_ns)
        return self._allowed - self._in_flight

    @property
    def rtt_ns(self) -> int:
        """The round-trip time without waiting in queues."""
        return self._rtt_ns

    def allowance_without_growth(self, now_ns: int) -> int:
        """Return the ``allowance`` without changing state: acknowledged bytes free room but do not open the window."""
        free = self._allowed - self._in_flight
        run, rtt_ns = self._first, self._rtt_ns
        while run is not None and run.start_ns + rtt_ns + run.delay.later_ns <= now_ns:
            free += run.size_bytes
            run = run.following
        return free

    @property
    def _allowed(self) -> int:
        return self._window if self._congestion is None else min(self._window, self._congestion.size_bytes)

    @property
    def next_credit_ns(self) -> int:
        """The time of the next acknowledgement of bytes in flight. Valid only after ``allowance`` has returned 0."""
        run = self._first
        assert run is not None
        return run.start_ns + self._rtt_ns + run.delay.later_ns

    def sent(
        self, start_ns: int, end_ns: int, size_bytes: int, delay: Delay | None = None, *, limited: bool = False
    ) -> None:
        """Record that ``size_bytes``, within the allowance, left from ``start_ns`` to ``end_ns``.

        Pass ``limited`` if no more was allowed. If the congestion window was the limit, bytes sent in the following
        round count as limited by it too, and open the window by all acknowledged bytes: Linux re-evaluates this only
        when the bytes in flight have been acknowledged (``tcp_cwnd_validate``).
        """
        self._in_flight += size_bytes
        self._last_sent_ns = end_ns
        last = None if self._first is None else self._last
        if limited and self._congestion is not None and self._congestion.size_bytes <= self._window:
            self._limited_until_ns = start_ns + self._rtt_ns + (0 if delay is None else self._rtt_ns)
        limited = start_ns <= self._limited_until_ns
        if delay is None and last is not None and last.end_ns == start_ns and end_ns - last.start_ns <= self._rtt_ns:
            # Merge into one run, so that many small successive transfers are not stored one by one.
            last.end_ns, last.size_bytes = end_ns, last.size_bytes + size_bytes
            last.limited = last.limited or limited
        else:
            self._append(_Run(start_ns, end_ns, size_bytes, _NO_DELAY if delay is None else delay, limited=limited))

    def _append(self, run: _Run) -> None:
        last = self._last
        if self._first is None or last is None:
            self._first = run
        else:
            last.following = run
        self._last = run

    @property
    def in_flight_bytes(self) -> int:
        """The bytes that are not acknowledged, as of the last ``allowance``, but for those sent openly."""
        return self._in_flight

    @property
    def timeout_ns(self) -> int:
        """The retransmission timeout. It is derived from acknowledgements: if they are delayed, it is longer."""
        return self._rtt_ns + self._variation_ns + self._waited_ns

    @property
    def open_bytes(self) -> int:
        """The bytes that windows allow in flight; ``BOUNDED`` or more if none limits them."""
        return self._allowed

    def flights(self) -> list[tuple[int, int]]:
        """Return of all that is in flight, in order, when it began to leave and when it is to be acknowledged."""
        flights = []
        run = self._first
        while run is not None:
            flights.append((run.start_ns, run.start_ns + self._rtt_ns + run.delay.later_ns))
            run = run.following
        return flights

    def path_changes(self, rtt_ns: int, held_bytes: int, before_ns: int) -> None:
        """Handle that a round trip lasts ``rtt_ns`` for all that leaves at ``before_ns`` or later.

        The line carries ``held_bytes`` of payload in it, 0 without a rate.
        """
        earlier_ns = self._rtt_ns - rtt_ns
        run = self._first
        while run is not None:
            if run.start_ns < before_ns:
                run.start_ns += earlier_ns
                run.end_ns += earlier_ns
            run = run.following
        self._rtt_ns = rtt_ns
        if self._congestion is not None:
            self._congestion.path_changes(rtt_ns, held_bytes or None)

    def lose(self, now_ns: int, *, needless: bool) -> None:
        """Handle a timeout that ends at ``now_ns``: nothing is in flight any more, and the window is narrower.

        It is ``needless`` if bytes had arrived and only their acknowledgements were lost: then the window is halved
        less (F-RTO: RFC 5682; Linux: ``tcp_process_loss``).
        """
        self.answered(now_ns)
        if self._congestion is not None:
            self._congestion.lose(needless=needless)

    def answered(self, now_ns: int) -> None:
        """Handle that all that is in flight is acknowledged at once."""
        self._first = None
        self._in_flight = 0
        self._last_sent_ns = max(self._last_sent_ns, now_ns)

    def _restart_if_idle(self, now_ns: int) -> None:
        congestion = self._congestion
        if not self._restarts or congestion is None or congestion.is_initial:
            return
        count = halvings(now_ns - self._last_sent_ns, self.timeout_ns)
        if not count:
            return
        # The caller is about to send, so the same idle time must not count again.
        self._last_sent_ns = now_ns
        while count and not congestion.is_initial:
            congestion.halve()
            count -= 1


def let_out_bytes(window_bytes: int, segment_bytes: int) -> int:
    """Return the bytes that a connection has in flight under a window: whole pairs of segments.

    Linux defers a send of less than two segments until more is acknowledged (``tcp_min_tso_segs`` and
    ``tcp_tso_should_defer``), so the rest of a window is never used.
    """
    pair_bytes = 2 * segment_bytes
    return max(window_bytes // pair_bytes * pair_bytes, pair_bytes)


def opened(
    line: Line,
    connections: int,
    settings: TcpSettings,
    *,
    window: bool = True,
    slow_start: bool = True,
    least_timeout_ns: int = LEAST_TIMEOUT_NS,
    piecewise: bool = False,
) -> TcpWindow:
    """Return the state of newly opened connections over a line.

    ``window`` and ``slow_start`` switch these limits on. On a line without latency neither limits: there is no round
    trip to wait for. ``piecewise`` is that of ``CongestionWindow``.
    """
    rtt_ns, restarts = line.rtt_ns, settings.restarts_after_idle
    window_bytes = let_out_bytes(settings.window_bytes, line.payload_bytes) if rtt_ns > 0 and window else None
    congestion, each = None, None
    if rtt_ns > 0 and slow_start:
        initial_bytes = INITIAL_SEGMENTS * line.payload_bytes
        settles = settings.leaves_slow_start_early and line.rate_bps is not None
        held_bytes = line.payload_per_rtt() if settles else None
        congestion = CongestionWindow(connections, connections * initial_bytes, rtt_ns, held_bytes, piecewise=piecewise)
        if connections > 1:
            timeout_ns = rtt_ns + least_timeout_ns if restarts else None
            each = Connections(connections, window_bytes, initial_bytes, timeout_ns)
    return TcpWindow(
        rtt_ns,
        None if window_bytes is None else connections * window_bytes,
        congestion,
        restarts=restarts,
        least_timeout_ns=least_timeout_ns,
        each=each,
    )
