"""Simulate the sending end of a TCP connection: what it sends, what it takes for lost, and when it sends that again.

The rules are those of Linux 6.1: selective acknowledgements and RACK with its tail loss probe (RFC 8985), proportional
rate reduction while it recovers (RFC 6937), and retransmission timeouts (RFC 6298) in ticks of 10 ms.
"""

from collections import deque
from enum import IntEnum
from typing import Final, Protocol

from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.segments.congestion_control import Bbr, Cubic
from wanbed.runner.simulator.segments.lane import Lane
from wanbed.runner.simulator.segments.receiver import Receiver
from wanbed.runner.simulator.segments.segment import INITIAL_SEGMENTS, Segment
from wanbed.testbed.network.flow_model.line import FRAME_BYTES, PAYLOAD_BYTES

_TICK_NS: Final = 10_000_000
"""The tick of a kernel's clock at 100 Hz, as in virtual time."""

_LEAST_TIMEOUT_NS: Final = 200_000_000
_FIRST_TIMEOUT_NS: Final = 1_000_000_000
_PROBE_TICKS: Final = 2


class RoundTrips:
    """The round-trip times of one connection: the least one, the smoothed one, and how much they vary."""

    __slots__ = ("_smooth_ns", "_varies_ns", "least_ns")

    def __init__(self) -> None:
        self.least_ns = self._smooth_ns = self._varies_ns = 0

    def measure(self, first_ns: int, last_ns: int) -> None:
        """Add an acknowledgement's times, since the first and since the last segment was sent that it is for."""
        if not self.least_ns or last_ns < self.least_ns:
            self.least_ns = last_ns
        if not self._smooth_ns:
            self._smooth_ns, self._varies_ns = first_ns, first_ns // 2
        else:
            self._varies_ns += (abs(first_ns - self._smooth_ns) - self._varies_ns) // 4
            self._smooth_ns += (first_ns - self._smooth_ns) // 8

    @property
    def timeout_ns(self) -> int:
        """The retransmission timeout, without back-off."""
        if not self._smooth_ns:
            return _FIRST_TIMEOUT_NS
        return self._smooth_ns + max(4 * self._varies_ns, _LEAST_TIMEOUT_NS)

    def probe_ns(self, outstanding: int) -> int:
        """Return after how long a tail loss probe is sent. The acknowledgement of a single segment may be delayed."""
        if not self._smooth_ns:
            return _FIRST_TIMEOUT_NS
        return 2 * self._smooth_ns + (_LEAST_TIMEOUT_NS if outstanding == 1 else _PROBE_TICKS * _TICK_NS)

    @property
    def reordering_ns(self) -> int:
        """The time for which a segment is waited for that may only be late."""
        return min(self.least_ns // 4, self._smooth_ns // 8)


def goes_off_ns(from_ns: int, wait_ns: int) -> int:
    """Return when a timer of the kernel goes off: it counts whole ticks, and one more."""
    return (from_ns // _TICK_NS - -wait_ns // _TICK_NS + 1) * _TICK_NS


def late_segment_ns(now_ns: int, wait_ns: int) -> int:
    """Return when the timer for segments that may only be late goes off."""
    return goes_off_ns(now_ns, wait_ns + _PROBE_TICKS * _TICK_NS)


_DUPLICATES: Final = 3
_HEADER_BYTES: Final = FRAME_BYTES - PAYLOAD_BYTES
_NEVER: Final = -1


class _State(IntEnum):
    """The way in which a sender deals with losses at present."""

    OPEN = 0
    RECOVERS = 1
    TIMED_OUT = 2


class _SegmentSource(Protocol):
    """The source of a sender's bytes."""

    def refill(self, sender: "SegmentSender", now_ns: int) -> None:
        """Add bytes to ``sender.written`` if there are any, as its socket has room."""

    def carried(self, from_ns: int, until_ns: int, size_bytes: int) -> None:
        """Handle that the line carries payload bytes between two times."""


class SegmentSender:
    """The sending end. ``most_bytes`` may be in flight, ``unsent_bytes`` may wait to be sent.

    ``restarts`` is whether the window is reduced after a pause. ``header_bytes`` are those of each packet.
    """

    def __init__(
        self,
        events: EventQueue,
        stream: _SegmentSource,
        congestion: Cubic | Bbr,
        forth: Lane,
        *,
        most_bytes: int,
        unsent_bytes: int,
        restarts: bool,
        header_bytes: int = _HEADER_BYTES,
    ) -> None:
        self.congestion = congestion
        self._bbr = congestion if isinstance(congestion, Bbr) else None
        self._pace_ns = self._paced = 0
        self._wakes_ns = _NEVER
        self.written = self.sent = 0
        self.last_begun = 0
        self._events, self._stream, self._forth = events, stream, forth
        self._most_bytes, self._restarts, self._header_bytes = most_bytes, restarts, header_bytes
        self._unsent_bytes = unsent_bytes
        self._state = _State.OPEN
        self._outstanding: deque[Segment] = deque()
        self._by_time: deque[tuple[Segment, int]] = deque()
        self._lost: deque[Segment] = deque()
        self._una = self._seen = 0
        self.in_flight = 0
        self._beyond_gap = 0
        self._high = 0
        self._before, self._delivered, self._resent = 1, 0, 0
        self._rack_ns, self._rack_end, self._rack_rtt_ns = -1, 0, 0
        self._round_trips = RoundTrips()
        self._backoff = 0
        self._rto_from_ns = self._probe_from_ns = 0
        self._probed = self._probe_resent = _NEVER
        self._reorder_ns = _NEVER
        self._due_ns = self._timer_ns = _NEVER
        self._last_sent_ns = _NEVER
        self._is_limited, self._most_out, self._usage_end = False, 0, 0

    def connect(self, receiver: Receiver) -> None:
        """Set the other end. Call it once, before anything is sent."""
        self.receiver = receiver

    @property
    def has_room(self) -> bool:
        """Tell whether the socket is writable: less than half of what may wait does (``tcp_stream_memory_free``)."""
        return 2 * self.unsent < self._unsent_bytes

    @property
    def unsent(self) -> int:
        """The bytes that have been written but not sent."""
        return self.written - self.sent

    def push(self, now_ns: int) -> None:
        """Send what may be sent now."""
        congestion, bbr = self.congestion, self._bbr
        if self._restarts and not self._outstanding and self._last_sent_ns >= 0:
            self._stream.refill(self, now_ns)
            if self.unsent:
                self._restart_if_idle(now_ns)
        limited, sent = False, False
        while True:
            if self.in_flight >= congestion.window:
                limited = True
                break
            if bbr is not None and self._pace_ns > now_ns:
                self._wake(self._pace_ns)
                break
            segment = self._next_lost()
            if segment is None:
                if self.has_room:
                    self._stream.refill(self, now_ns)
                size_bytes = min(self.unsent, PAYLOAD_BYTES)
                if not size_bytes or self.sent + size_bytes - self._una > self._most_bytes:
                    if bbr is not None and not size_bytes:
                        bbr.ran_out(self.in_flight)
                    break
                segment = Segment(self.sent, self.sent + size_bytes)
                self.sent += size_bytes
                if not self._outstanding:
                    self._rto_from_ns = now_ns
                    if self._last_sent_ns >= 0:
                        congestion.resumed(now_ns - self._last_sent_ns, now_ns)
                self._outstanding.append(segment)
                self.receiver.expect(segment)
                self._probe_from_ns = now_ns
            self._transmit(segment, now_ns)
            sent = True
        if sent:
            self._use(limited or self.in_flight >= congestion.window)
            self._arm(now_ns)

    def _use(self, limited: bool) -> None:
        """Remember whether the window was the limit (Linux: ``tcp_cwnd_validate``)."""
        out = len(self._outstanding)
        if self._una >= self._usage_end or limited or (not self._is_limited and out > self._most_out):
            self._is_limited, self._most_out, self._usage_end = limited, out, self.sent

    def _next_lost(self) -> Segment | None:
        lost = self._lost
        while lost:
            segment = lost.popleft()
            if segment.is_lost and not segment.is_acknowledged:
                segment.is_lost, segment.resent = False, True
                self._resent += 1
                return segment
        return None

    def _transmit(self, segment: Segment, now_ns: int) -> None:
        if segment.sent_ns and segment is self._outstanding[0]:
            self._rto_from_ns = now_ns
        elif self._state is _State.RECOVERS and not segment.resent:
            self._resent += 1
        if (bbr := self._bbr) is not None:
            segment.stamp = bbr.stamped(now_ns, idle=not self.in_flight and segment is self._outstanding[0])
            self._pace(bbr, now_ns)
        segment.sent_ns = self._last_sent_ns = now_ns
        if not segment.in_flight:
            segment.in_flight = True
            self.in_flight += 1
        self._by_time.append((segment, now_ns))
        size_bytes = segment.end - segment.start
        arrival_ns = self._forth.send(now_ns, size_bytes + self._header_bytes)
        if arrival_ns >= 0:
            self._stream.carried(arrival_ns - self._forth.carried_ns, arrival_ns, size_bytes)
            self.receiver.arrive(segment, arrival_ns)

    def _pace(self, bbr: Bbr, now_ns: int) -> None:
        """Count a segment of a burst; after the last one, set when the next burst may be sent."""
        self._paced += 1
        if self._paced >= bbr.burst_segments:
            self._pace_ns = max(self._pace_ns, now_ns) + bbr.pace_ns(self._paced)
            self._paced = 0

    def _wake(self, at_ns: int) -> None:
        if self._wakes_ns != at_ns:
            self._wakes_ns = at_ns
            self._events.at(at_ns, self._awake, None)

    def _awake(self, now_ns: int, _: None) -> None:
        if self._wakes_ns == now_ns:
            self._wakes_ns = _NEVER
            self.push(now_ns)

    def acknowledged(self, now_ns: int, what: tuple[int, int]) -> None:
        """Handle an acknowledgement."""
        if (until := what[1]) <= self._seen:
            return
        rtt_ns = first_rtt_ns = -1
        delivered = 0
        for segment in self.receiver.arrived_since(self._seen, until):
            if segment.is_acknowledged:
                continue
            segment.is_acknowledged = True
            segment.is_lost = False
            delivered += 1
            self._beyond_gap += 1
            if self._bbr is not None:
                self._bbr.arrived(segment, now_ns)
            if segment.in_flight:
                segment.in_flight = False
                self.in_flight -= 1
            took_ns = now_ns - segment.sent_ns
            if segment.resent:
                if took_ns < self._round_trips.least_ns:
                    continue
            else:
                rtt_ns = took_ns
                first_rtt_ns = took_ns if first_rtt_ns < 0 else first_rtt_ns
            if (segment.sent_ns, segment.end) > (self._rack_ns, self._rack_end):
                self._rack_ns, self._rack_end, self._rack_rtt_ns = segment.sent_ns, segment.end, took_ns
        self._seen = until
        advanced = what[0] > self._una
        if advanced:
            self._advance(now_ns, what[0])
        if rtt_ns >= 0:
            self._round_trips.measure(first_rtt_ns, rtt_ns)
            self.congestion.sampled(now_ns, rtt_ns, self._una, self.sent)
        newly_lost = self._find_lost(now_ns)
        self._control(now_ns, delivered, advanced=advanced, newly_lost=newly_lost)
        self.push(now_ns)
        self._arm(now_ns)

    def _advance(self, now_ns: int, next_byte: int) -> None:
        outstanding = self._outstanding
        while outstanding and outstanding[0].end <= next_byte:
            outstanding.popleft()
            self._beyond_gap -= 1
        self._una = next_byte
        self._rto_from_ns = self._probe_from_ns = now_ns
        self._backoff = 0
        if self._probed >= 0 and next_byte >= self._probed:
            if self._probe_resent >= 0 and self._state is _State.OPEN:
                self.congestion.threshold = self.congestion.reduced()
                if self._bbr is None:
                    self.congestion.window = self.congestion.threshold
            self._probed = self._probe_resent = _NEVER

    def _find_lost(self, now_ns: int) -> int:
        """Take segments for lost that were sent before one that has arrived (RACK). Return how many."""
        by_time, found = self._by_time, 0
        self._reorder_ns = _NEVER
        if self._rack_ns < 0:
            return 0
        at_once = self._state is not _State.OPEN or self._beyond_gap >= _DUPLICATES
        wait_ns = 0 if at_once else self._round_trips.reordering_ns
        while by_time:
            segment, sent_ns = by_time[0]
            if segment.is_acknowledged or segment.sent_ns != sent_ns or not segment.in_flight:
                by_time.popleft()
                continue
            if (sent_ns, segment.end) > (self._rack_ns, self._rack_end):
                break
            left_ns = sent_ns + self._rack_rtt_ns + wait_ns - now_ns
            if left_ns > 0:
                self._reorder_ns = now_ns + left_ns
                break
            by_time.popleft()
            self._mark_lost(segment)
            found += 1
        return found

    def _mark_lost(self, segment: Segment) -> None:
        segment.is_lost = True
        if segment.in_flight:
            segment.in_flight = False
            self.in_flight -= 1
        self._lost.append(segment)

    def _control(self, now_ns: int, delivered: int, *, advanced: bool, newly_lost: int) -> None:
        congestion = self.congestion
        if self._state is not _State.OPEN and self._una >= self._high:
            if self._state is _State.RECOVERS and self._bbr is None:
                congestion.window = congestion.threshold
            self._state = _State.OPEN
        if self._state is _State.OPEN and newly_lost:
            self._state = _State.RECOVERS
            self._high = self.sent
            self._before, self._delivered, self._resent = congestion.window, 0, 0
            congestion.threshold = congestion.reduced()
            self._probed = self._probe_resent = _NEVER
        if self._bbr is not None:
            recovers = self._state is not _State.OPEN
            self._bbr.control(now_ns, delivered, newly_lost, self.in_flight, recovers=recovers)
        elif self._state is _State.RECOVERS:
            self._reduce(delivered, advanced=advanced, newly_lost=newly_lost)
        elif delivered and (advanced or self._state is _State.OPEN):
            limited = self._is_limited or (congestion.in_slow_start and congestion.window < 2 * self._most_out)
            if limited:
                congestion.acknowledged(now_ns, delivered)

    def _reduce(self, delivered: int, *, advanced: bool, newly_lost: int) -> None:
        """Reduce the window in proportion to what arrives (RFC 6937)."""
        if not delivered and self._resent:
            return
        congestion = self.congestion
        self._delivered += delivered
        room = congestion.threshold - self.in_flight
        if room < 0:
            count = -(-congestion.threshold * self._delivered // self._before) - self._resent
        else:
            count = max(self._delivered - self._resent, delivered)
            if advanced and not newly_lost:
                count += 1
            count = min(room, count)
        congestion.window = max(self.in_flight + max(count, 0 if self._resent else 1), 1)

    def _restart_if_idle(self, now_ns: int) -> None:
        congestion = self.congestion
        timeout_ticks = -(-self._round_trips.timeout_ns // _TICK_NS)
        idle_ticks = now_ns // _TICK_NS - self._last_sent_ns // _TICK_NS
        if idle_ticks <= timeout_ticks:
            return
        congestion.threshold = max(congestion.threshold, congestion.window * 3 // 4)
        least = min(INITIAL_SEGMENTS, congestion.window)
        window = congestion.window
        while (idle_ticks := idle_ticks - timeout_ticks) > 0 and window > least:
            window //= 2
        congestion.window = max(window, least)

    def _arm(self, now_ns: int) -> None:
        """Set the timer: for a probe, a retransmission timeout, or segments that may only be late."""
        if not self._outstanding:
            self._due_ns = _NEVER
            return
        due_ns = goes_off_ns(self._rto_from_ns, self._round_trips.timeout_ns << self._backoff)
        if self._state is _State.OPEN and not self._beyond_gap and self._probed < 0:
            wait_ns = self._round_trips.probe_ns(len(self._outstanding))
            due_ns = min(due_ns, goes_off_ns(self._probe_from_ns, wait_ns))
        if self._reorder_ns >= 0:
            due_ns = min(due_ns, late_segment_ns(now_ns, self._reorder_ns - now_ns))
        self._due_ns = due_ns
        if self._timer_ns < 0 or due_ns < self._timer_ns:
            self._timer_ns = due_ns
            self._events.at(due_ns, self._timer, None)

    def _timer(self, now_ns: int, _: None) -> None:
        if now_ns != self._timer_ns:
            return
        self._timer_ns = _NEVER
        if self._due_ns < 0:
            return
        if self._due_ns > now_ns:
            self._timer_ns = self._due_ns
            self._events.at(self._due_ns, self._timer, None)
            return
        if self._reorder_ns >= 0 and now_ns >= self._reorder_ns:
            newly_lost = self._find_lost(now_ns)
            self._control(now_ns, 0, advanced=False, newly_lost=newly_lost)
            self.push(now_ns)
        elif now_ns >= goes_off_ns(self._rto_from_ns, self._round_trips.timeout_ns << self._backoff):
            self._time_out(now_ns)
        else:
            self._probe(now_ns)
        self._arm(now_ns)

    def _probe(self, now_ns: int) -> None:
        """Send something to learn whether the last segments have arrived (RFC 8985, section 7)."""
        self._probed = self.sent
        self._rto_from_ns = now_ns
        if self.has_room:
            self._stream.refill(self, now_ns)
        if self.unsent and self.sent + PAYLOAD_BYTES - self._una <= self._most_bytes:
            segment = Segment(self.sent, min(self.written, self.sent + PAYLOAD_BYTES))
            self.sent = segment.end
            self._outstanding.append(segment)
            self.receiver.expect(segment)
        else:
            segment = self._outstanding[-1]
            segment.resent = True
            self._probe_resent = 1
        self._probed = self.sent
        self._transmit(segment, now_ns)

    def _time_out(self, now_ns: int) -> None:
        congestion = self.congestion
        if self._state is not _State.TIMED_OUT:
            congestion.threshold = congestion.reduced()
            congestion.timed_out(now_ns, self.sent)
        self._state = _State.TIMED_OUT
        self._high = self.sent
        self._lost.clear()
        for segment in self._outstanding:
            if not segment.is_acknowledged:
                self._mark_lost(segment)
        congestion.window = self.in_flight + 1
        self._backoff = min(self._backoff + 1, 8)
        self._rto_from_ns = now_ns
        self._probed = self._probe_resent = _NEVER
        self.push(now_ns)
