"""Simulate the sending end of a TCP connection: what it sends, what it takes for lost, and when it sends that again.

The rules are those of Linux 6.1 (``net/ipv4/tcp_output.c``, ``tcp_input.c``):

- **Packets** hold as many segments as the pace of the connection sends in a millisecond, two at least (``_most``), of
  what was written at once (``_Written``). A smaller one waits for the next acknowledgement if that comes soon
  (``_defers``).
- **Losses** are found by selective acknowledgements and RACK with its tail loss probe (RFC 8985). The window is reduced
  in proportion while it recovers (RFC 6937), and retransmission timeouts (RFC 6298) count ticks of 10 ms.
- **Windows** open while they are the limit. One that is not used loses half of the rest if nothing was acknowledged for
  a timeout (``_validate``), and a connection that restarts after a pause begins with less (``_restart_if_idle``).
- **Buffers** take bytes while less waits to be sent than may wait, and more once it is less than half of that
  (``_accept``).
"""

from collections import deque
from enum import IntEnum
from typing import Final, Protocol

from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import PAYLOAD_BYTES
from wanbed.flow.packets.congestion_control import Bbr, Cubic
from wanbed.flow.packets.packet import HEADER_BYTES, INITIAL_SEGMENTS, Acknowledgement, Packet
from wanbed.flow.packets.receiver import Receiver
from wanbed.flow.packets.tick import MET_AT_ONCE, TICK_NS, Ticks
from wanbed.flow.packets.way import Way

_LEAST_TIMEOUT_NS: Final = 200_000_000
_FIRST_TIMEOUT_NS: Final = 1_000_000_000
_LEAST_WAIT_NS: Final = 2_000_000
"""The least wait for a tail loss probe and for late segments beyond the round trips (``TCP_TIMEOUT_MIN_US``)."""


class RoundTrips:
    """The round-trip times of one connection: the least one, the smoothed one, and how much they vary.

    The variation is the largest of a round trip, and decreases by a quarter of the rest in each (Linux:
    ``tcp_rtt_estimator``).
    """

    __slots__ = ("_largest_ns", "_mean_ns", "_round_end", "_varies_ns", "least_ns", "smooth_ns")

    def __init__(self) -> None:
        self.least_ns = self.smooth_ns = 0
        self._mean_ns = self._varies_ns = 0
        self._largest_ns = _LEAST_TIMEOUT_NS
        self._round_end = 0

    def measure(self, first_ns: int, last_ns: int, una: int, sent: int) -> None:
        """Add an acknowledgement's times, since the first and since the last segment was sent that it is for.

        ``una`` and ``sent`` are the first byte not acknowledged and not sent.
        """
        if not self.least_ns or last_ns < self.least_ns:
            self.least_ns = last_ns
        if not self.smooth_ns:
            self.smooth_ns, self._mean_ns = first_ns, 2 * first_ns
            self._varies_ns = self._largest_ns = max(self._mean_ns, _LEAST_TIMEOUT_NS)
            self._round_end = sent
            return
        error_ns = first_ns - self.smooth_ns
        self.smooth_ns += error_ns // 8
        if error_ns < 0:
            beyond_ns = -error_ns - self._mean_ns // 4
            self._mean_ns += beyond_ns // 8 if beyond_ns > 0 else beyond_ns
        else:
            self._mean_ns += error_ns - self._mean_ns // 4
        if self._mean_ns > self._largest_ns:
            self._largest_ns = self._mean_ns
            self._varies_ns = max(self._varies_ns, self._largest_ns)
        if una > self._round_end:
            self._varies_ns -= max(self._varies_ns - self._largest_ns, 0) // 4
            self._round_end, self._largest_ns = sent, _LEAST_TIMEOUT_NS

    @property
    def timeout_ns(self) -> int:
        """The retransmission timeout, without back-off."""
        return self.smooth_ns + self._varies_ns if self.smooth_ns else _FIRST_TIMEOUT_NS

    def probe_ns(self, outstanding: int) -> int:
        """Return after how long a tail loss probe is sent. The acknowledgement of a single segment may be delayed."""
        if not self.smooth_ns:
            return _FIRST_TIMEOUT_NS
        return 2 * self.smooth_ns + (_LEAST_TIMEOUT_NS if outstanding == 1 else _LEAST_WAIT_NS)

    @property
    def reordering_ns(self) -> int:
        """The time for which a segment is waited for that may only be late."""
        return min(self.least_ns // 4, self.smooth_ns // 8)


def late_segment_ns(ticks: Ticks, now_ns: int, wait_ns: int) -> int:
    """Return when the timer for segments that may only be late goes off."""
    return ticks.goes_off_ns(now_ns, wait_ns + _LEAST_WAIT_NS)


_DUPLICATES: Final = 3
_NEVER: Final = -1

_NS_PER_S: Final = 10**9
_MOST_BYTES: Final = 65_215
"""The most payload of one packet: 64 KiB less what the kernel keeps for headers."""
_FIRST_WINDOW_BYTES: Final = 65_535
_LEAST_SEGMENTS: Final = 2
_RECENT_NS: Final = 1_000_000
_WINDOW_PART: Final = 3
_QUICK_NS: Final = 512_000
_QUICK_DOUBLINGS: Final = 32
_MOST_PAGES: Final = 17
_PAGE_BYTES: Final = 4096


class _State(IntEnum):
    """The way in which a sender deals with losses at present."""

    OPEN = 0
    RECOVERS = 1
    TIMED_OUT = 2


class _Stream(Protocol):
    """The stream that a sender carries a part of."""

    def progressed(self, sender: "TcpSender", now_ns: int) -> None:
        """Handle that a sender may have sent more."""

    def carried(self, from_ns: int, until_ns: int, size_bytes: int) -> None:
        """Handle that the line carries payload bytes between two times."""


class _Written:
    """The bytes written and not sent, in the kernel's buffers: a packet has bytes of one alone.

    What is written goes into the last buffer first, up to ``most_bytes`` and to ``_MOST_PAGES`` pages of memory or
    parts of pages (Linux: ``sysctl_max_skb_frags``). Each call sends from the first page on.
    """

    __slots__ = ("_ends", "_parts", "most_bytes", "sent", "written")

    def __init__(self, most_bytes: int) -> None:
        self.written = self.sent = 0
        self.most_bytes = most_bytes
        self._ends: deque[int] = deque()
        # Of the last buffer: where in the stream its parts of one call each begin, and where in memory.
        self._parts: list[tuple[int, int]] = []

    def write(self, size_bytes: int, memory_byte: int, *, begins: bool) -> int:
        """Add bytes, which begin at a byte of memory, to one buffer. Return how many.

        It is 0 if the last one has no room for them and no other ``begins``.
        """
        ends, parts = self._ends, self._parts
        added = 0
        if ends:
            start = ends[-2] if len(ends) > 1 else self.sent
            added = min(self.most_bytes - (ends[-1] - start), self._pages_bytes(start, memory_byte), size_bytes)
        if added <= 0:
            if not begins:
                return 0
            added = min(self.most_bytes, size_bytes)
            ends.append(self.written)
            parts.clear()
        if not parts or not self._follows(memory_byte):
            parts.append((self.written, memory_byte))
        ends[-1] += added
        self.written += added
        return added

    def _follows(self, memory_byte: int) -> bool:
        """Return whether the byte of memory comes after the last one of the last buffer."""
        began, first = self._parts[-1]
        return first + self.written - began == memory_byte

    def _pages_bytes(self, start: int, memory_byte: int) -> int:
        """Return how many bytes from that one of memory on are in pages for which the last buffer has room."""
        pages, end = _MOST_PAGES, self.written
        for began, first in reversed(self._parts):
            if end <= start:
                break
            begins = max(began, start)
            pages -= (first + end - began - 1) // _PAGE_BYTES - (first + begins - began) // _PAGE_BYTES + 1
            end = began
        rest = -memory_byte % _PAGE_BYTES
        if rest and not self._follows(memory_byte):
            pages -= 1
        return max(pages, 0) * _PAGE_BYTES + (rest if pages >= 0 else 0)

    @property
    def first_bytes(self) -> int:
        """The bytes in the first buffer that are not sent yet."""
        return self._ends[0] - self.sent if self._ends else 0

    @property
    def is_last(self) -> bool:
        """Tell whether the first buffer is the last one, too."""
        return len(self._ends) == 1

    @property
    def is_full(self) -> bool:
        """Tell whether a single buffer has as many bytes as it may."""
        return len(self._ends) == 1 and self._ends[0] - self.sent >= self.most_bytes

    def send(self, size_bytes: int) -> None:
        """Take bytes of the first buffer."""
        self.sent += size_bytes
        if self.sent == self._ends[0]:
            self._ends.popleft()


class TcpSender:
    """The sending end, of which ``unsent_bytes`` may wait to be sent.

    ``restarts`` is whether the window is reduced after a pause. ``most_segments`` is how many a packet may have, of
    ``segment_bytes`` at most each, and ``rtts_ns`` the round trips in which the connection was made and of its
    greeting, which is in flight until ``greeted_ns``.
    """

    def __init__(
        self,
        events: EventQueue,
        stream: _Stream,
        congestion: Cubic | Bbr,
        forth: Way,
        *,
        unsent_bytes: int,
        restarts: bool,
        most_segments: int = 1,
        rtts_ns: tuple[int, ...] = (),
        greeted_ns: int = 0,
        segment_bytes: int = PAYLOAD_BYTES,
        ticks: Ticks = MET_AT_ONCE,
    ) -> None:
        self._ticks = ticks
        self.congestion = congestion
        self._bbr = congestion if isinstance(congestion, Bbr) else None
        self._pace_ns = self._paced = 0
        self._wakes_ns = _NEVER
        self.last_begun = 0
        self._events, self._stream, self._forth = events, stream, forth
        self._restarts = restarts
        self._unsent_bytes = unsent_bytes
        self._segment_bytes = segment_bytes
        self._most_segments = max(1, min(most_segments, _MOST_BYTES // self._segment_bytes))
        self._window_bytes = self._widest_bytes = 0
        self._whole = self._most_segments
        self._written = _Written(self._segment_bytes)
        self._unaccepted_bytes = 0
        self._answered: Receiver | None = None
        self._state = _State.OPEN
        self._outstanding: deque[Packet] = deque()
        self._out = 0
        self._by_time: deque[tuple[Packet, int]] = deque()
        self._lost: deque[Packet] = deque()
        self._una = self._seen = 0
        self.in_flight = 0
        self._beyond_gap = 0
        self._high = 0
        self._before, self._delivered, self._resent = 1, 0, 0
        self._rack_ns, self._rack_end, self._rack_rtt_ns = -1, 0, 0
        self._round_trips = RoundTrips()
        self._pace_bytes_per_s = 0
        self._greeted_ns = greeted_ns
        self._greeting_ns = greeted_ns - rtts_ns[-1] if rtts_ns else 0
        if rtts_ns:
            for number, rtt_ns in enumerate(rtts_ns[:1] if greeted_ns > 0 else rtts_ns):
                self._round_trips.measure(rtt_ns, rtt_ns, number - 3, number - 3)
            self._set_pace()
        self._backoff = 0
        self._undone = 0, 0
        self._rto_from_ns = self._probe_from_ns = 0
        self._probed = self._probe_resent = _NEVER
        self._reorder_ns = _NEVER
        self._due_ns = self._timer_ns = _NEVER
        self._last_sent_ns = _NEVER
        self._is_limited, self._most_out, self._usage_end = False, 0, 0
        self._used, self._used_tick = 0, 0

    def connect(self, receiver: Receiver) -> None:
        """Set the other end. Call it once, before anything is sent."""
        self.receiver = receiver
        # A window is not scaled until the connection is made.
        self._window_bytes = self._widest_bytes = min(receiver.told_window_bytes, _FIRST_WINDOW_BYTES)
        if self._greeted_ns <= 0:
            return
        greeting = Packet(-1, 0, self._segment_bytes)
        greeting.sent_ns = self._last_sent_ns = self._greeting_ns
        greeting.in_flight = greeting.arrived = True
        self._outstanding.append(greeting)
        self._by_time.append((greeting, greeting.sent_ns))
        self._out = self.in_flight = greeting.segments
        self._una = greeting.start
        receiver.greeted(greeting)
        self._events.at(self._greeted_ns, self._greeted, None)

    def _greeted(self, now_ns: int, _: None) -> None:
        self.acknowledged(now_ns, Acknowledgement(0, 1, False, self._window_bytes))

    def answer(self, receiver: Receiver) -> None:
        """Set the receiving end of the other direction, whose acknowledgements packets carry."""
        self._answered = receiver

    @property
    def has_room(self) -> bool:
        """Tell whether the socket is writable: less than half of what may wait does (``tcp_stream_memory_free``)."""
        return 2 * self.unsent < self._unsent_bytes

    @property
    def takes_more(self) -> bool:
        """Tell whether the kernel accepts more bytes, as it may although the socket is not writable."""
        return self.unsent < self._unsent_bytes

    @property
    def accepted(self) -> int:
        """The bytes that the kernel has accepted: those in its buffers, and those sent."""
        return self._written.written

    @property
    def unsent(self) -> int:
        """The bytes in the kernel's buffers, which are not sent."""
        return self._written.written - self._written.sent

    @property
    def sent(self) -> int:
        """The bytes that have been sent."""
        return self._written.sent

    @property
    def written(self) -> int:
        """The bytes that have been handed over, whether the kernel has accepted them or not."""
        return self._written.written + self._unaccepted_bytes

    def write(self, size_bytes: int, now_ns: int, header_bytes: int = 0) -> None:
        """Hand over bytes, of which the kernel accepts what has room, and sends what may be sent now.

        The first of them, ``header_bytes``, are in a memory of their own.
        """
        if self._restarts and not self._outstanding and self._last_sent_ns >= 0:
            self._restart_if_idle(now_ns)
        if self._bbr is not None and self.unsent < self._segment_bytes and self.in_flight < self.congestion.window:
            self._bbr.ran_out(self.in_flight)
        self._unaccepted_bytes += size_bytes
        self._accept(now_ns, min(header_bytes, size_bytes))

    def _accept(self, now_ns: int, header_bytes: int = 0) -> None:
        """Fill buffers, and begin others while less waits than may wait (Linux: ``tcp_build_frag``)."""
        written = self._written
        written.most_bytes = (
            max(min(self._whole, self._widest_bytes // 2 // self._segment_bytes), 1) * self._segment_bytes
        )
        memory_byte = -_PAGE_BYTES if header_bytes else 0
        while self._unaccepted_bytes:
            added = written.write(header_bytes or self._unaccepted_bytes, memory_byte, begins=self.takes_more)
            if not added:
                break
            self._unaccepted_bytes -= added
            memory_byte += added
            if header_bytes:
                header_bytes -= added
                memory_byte = memory_byte if header_bytes else 0
            elif self._unaccepted_bytes and written.is_full:
                self._push(now_ns, is_writing=True)
        self._push(now_ns)

    def _progressed(self, now_ns: int) -> None:
        """Let the kernel accept more once the socket is writable, and tell the stream."""
        if self._unaccepted_bytes and self.has_room:
            self._accept(now_ns)
        self._stream.progressed(self, now_ns)

    def _push(self, now_ns: int, *, is_writing: bool = False) -> None:
        """Send what may be sent now.

        While more ``is_writing`` into buffers, a full one that is the first of all is offered once: a packet of it is
        sent, which does not wait to become larger (Linux: ``tcp_push_one``).
        """
        congestion, bbr = self.congestion, self._bbr
        limited, sent = False, False
        most = self._most()
        while True:
            if self.in_flight >= congestion.window:
                limited = True
                break
            if bbr is not None and self._pace_ns > now_ns:
                self._wake(self._pace_ns)
                break
            packet = self._next_lost(min(congestion.window - self.in_flight, most))
            if packet is None:
                size_bytes, waits = self._next_bytes(most, now_ns, may_defer=not is_writing)
                if not size_bytes:
                    limited = limited or waits
                    break
                packet = self._begin(size_bytes, now_ns)
            self._transmit(packet, now_ns)
            sent = True
            if is_writing:
                break
        limited = limited or self.in_flight >= congestion.window
        if sent or limited:
            self._validate(limited, now_ns)
        if sent:
            self._arm(now_ns)

    def _most(self) -> int:
        """Return the most segments of a packet (Linux: ``tcp_tso_autosize``)."""
        if self._most_segments <= _LEAST_SEGMENTS or not self._pace_bytes_per_s:
            return self._most_segments
        size_bytes = self._pace_bytes_per_s >> 10
        doublings = self._round_trips.least_ns // _QUICK_NS
        if doublings < _QUICK_DOUBLINGS:
            size_bytes += _MOST_BYTES >> doublings
        return min(max(min(size_bytes, _MOST_BYTES) // self._segment_bytes, _LEAST_SEGMENTS), self._most_segments)

    def _next_bytes(self, most: int, now_ns: int, *, may_defer: bool) -> tuple[int, bool]:
        """Return how many new bytes the next packet has, and if none whether the congestion window lets it wait."""
        length = self._written.first_bytes
        room = self._una + self._window_bytes - self.sent
        if not length or room < min(length, self._segment_bytes):
            return 0, False
        window = self.congestion.window
        free = window - self.in_flight
        if may_defer and length > self._segment_bytes:
            defers, limited = self._defers(length, room, free, most, now_ns)
            if defers:
                return 0, limited
        whole = min(max(window // 2, 1), free, most) * self._segment_bytes
        needed = min(length, room)
        if whole <= needed:
            return whole, False
        # The end of what was written, or of what the receive window lets out, goes with the segments before it (Linux:
        # ``tcp_mss_split_point``).
        return needed, False

    def _defers(self, length: int, room: int, free: int, most: int, now_ns: int) -> tuple[bool, bool]:
        """Return whether a packet waits to become larger, and whether for the congestion window.

        Linux: ``tcp_tso_should_defer``.
        """
        if self._state is not _State.OPEN or now_ns - self._last_sent_ns > _RECENT_NS or not self._outstanding:
            return False, False
        congested = free * self._segment_bytes
        limit = min(room, congested)
        if limit >= most * self._segment_bytes or (not self._written.is_last and limit >= length):
            return False, False
        if limit >= min(self._window_bytes, self.congestion.window * self._segment_bytes) // _WINDOW_PART:
            return False, False
        smooth_ns = self._round_trips.smooth_ns
        if self._outstanding[0].sent_ns + smooth_ns - now_ns > min(smooth_ns // 2, _RECENT_NS):
            return False, False
        if congested < room:
            return True, congested <= length
        return True, False

    def _begin(self, size_bytes: int, now_ns: int) -> Packet:
        """Return a new packet of the next bytes."""
        packet = Packet(self.sent, self.sent + size_bytes, self._segment_bytes)
        self._written.send(size_bytes)
        if not self._outstanding:
            self._rto_from_ns = now_ns
            if self._last_sent_ns >= 0:
                self.congestion.resumed(now_ns - self._last_sent_ns, now_ns)
        self._outstanding.append(packet)
        self._out += packet.segments
        self.receiver.expect(packet)
        self._probe_from_ns = now_ns
        return packet

    def _validate(self, limited: bool, now_ns: int) -> None:
        """Remember whether the window was the limit, and reduce it if not (Linux: ``tcp_cwnd_validate``)."""
        out, congestion = self._out, self.congestion
        if self._una >= self._usage_end or limited or (not self._is_limited and out > self._most_out):
            self._is_limited, self._most_out, self._usage_end = limited, out, self.sent
        tick = self._ticks.count(now_ns)
        if self._window_limits:
            self._used, self._used_tick = 0, tick
            return
        self._used = max(self._used, out)
        if not self._restarts or self._bbr is not None or tick - self._used_tick < self._timeout_ticks:
            return
        if self._state is _State.OPEN and self.unsent < self._unsent_bytes:
            used = max(self._used, INITIAL_SEGMENTS)
            if used < congestion.window:
                congestion.threshold = max(congestion.threshold, congestion.window * 3 // 4)
                congestion.window = (congestion.window + used) // 2
            self._used = 0
        self._used_tick = tick

    @property
    def _window_limits(self) -> bool:
        """Tell whether the window is or was the limit, so that it may open."""
        congestion = self.congestion
        return self._is_limited or (congestion.in_slow_start and congestion.window < 2 * self._most_out)

    @property
    def _timeout_ticks(self) -> int:
        return -(-self._round_trips.timeout_ns // TICK_NS)

    def _set_pace(self) -> None:
        """Set the pace by which packets are sized (Linux: ``tcp_update_pacing_rate``)."""
        congestion, smooth_ns = self.congestion, self._round_trips.smooth_ns
        if smooth_ns:
            percent = 200 if congestion.window < congestion.threshold // 2 else 120
            most = max(congestion.window, self._out)
            self._pace_bytes_per_s = self._segment_bytes * most * percent * _NS_PER_S // (100 * smooth_ns)

    def _next_lost(self, most: int) -> Packet | None:
        """Return the first of the packets that were lost, of at most so many segments (Linux: ``tcp_fragment``)."""
        lost = self._lost
        while lost:
            packet = lost.popleft()
            if packet.is_lost and not packet.is_acknowledged:
                if packet.segments > most:
                    packet, rest = self._cut(packet, most)
                    lost.appendleft(rest)
                packet.is_lost, packet.resent = False, True
                self._resent += packet.segments
                return packet
        return None

    def _transmit(self, packet: Packet, now_ns: int) -> None:
        if packet.sent_ns and packet is self._outstanding[0]:
            self._rto_from_ns = now_ns
        elif self._state is _State.RECOVERS and not packet.resent:
            self._resent += packet.segments
        if (bbr := self._bbr) is not None:
            packet.stamp = bbr.stamped(now_ns, idle=not self.in_flight and packet is self._outstanding[0])
            self._pace(bbr, packet.segments, now_ns)
        packet.sent_ns = self._last_sent_ns = now_ns
        if not packet.in_flight:
            packet.in_flight = True
            self.in_flight += packet.segments
        self._by_time.append((packet, now_ns))
        if self._answered is not None:
            packet.acknowledgement = self._answered.carried(now_ns)
        wire_bytes = packet.end - packet.start + packet.segments * HEADER_BYTES
        if packet.first_sent_ns >= 0:
            self._forth.send(now_ns, wire_bytes, self._arrives_again, packet)
        else:
            packet.first_sent_ns = now_ns
            self._forth.send(now_ns, wire_bytes, self._arrives, packet)

    def _arrives_again(self, now_ns: int, packet: Packet) -> None:
        packet.came_again = not packet.arrived
        self._arrives(now_ns, packet)

    def _arrives(self, now_ns: int, packet: Packet) -> None:
        size_bytes = packet.end - packet.start
        carrying_ns = self._forth.carrying_ns(size_bytes + packet.segments * HEADER_BYTES)
        self._stream.carried(now_ns - carrying_ns, now_ns, size_bytes)
        self.receiver.arrive(now_ns, packet)

    def _pace(self, bbr: Bbr, segments: int, now_ns: int) -> None:
        """Count segments of a burst; after the last one, set when the next burst may be sent."""
        self._paced += segments
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
            self._push(now_ns)
            self._progressed(now_ns)

    def acknowledged(self, now_ns: int, acknowledgement: Acknowledgement) -> None:
        """Handle an acknowledgement."""
        next_byte, until, is_duplicate, window_bytes = acknowledgement
        if is_duplicate and self._probe_resent >= 0:
            self._probed = self._probe_resent = _NEVER
        if until < self._seen:
            return
        is_wider = window_bytes > self._window_bytes
        if is_wider:
            self._window_bytes = self._widest_bytes = window_bytes
        if until == self._seen:
            if is_wider:
                self._push(now_ns)
            return
        delivered, first_rtt_ns, rtt_ns, is_first = self._take_arrived(until, now_ns)
        self._seen = until
        advanced = next_byte > self._una
        if self._state is _State.TIMED_OUT and advanced and is_first:
            self._undo()
        if advanced:
            self._advance(now_ns, next_byte)
        if rtt_ns >= 0:
            self._round_trips.measure(first_rtt_ns, rtt_ns, self._una, self.sent)
            self.congestion.sampled(now_ns, rtt_ns, self._una, self.sent, self._pace_bytes_per_s)
        newly_lost = self._find_lost(now_ns)
        self._control(now_ns, delivered, advanced=advanced, newly_lost=newly_lost)
        self._set_pace()
        self._push(now_ns)
        self._arm(now_ns)
        self._progressed(now_ns)

    @staticmethod
    def _whole_or_parts(packets: list[Packet]) -> list[Packet]:
        while any(packet.parts is not None for packet in packets):
            packets = [part for packet in packets for part in packet.parts or (packet,)]
        return packets

    def _take_arrived(self, until: int, now_ns: int) -> tuple[int, int, int, bool]:
        """Handle the packets that have arrived since the last acknowledgement.

        Return how many segments they have, the round-trip times of the first and of the last packet that was sent once,
        or else of the last one (Linux: ``tcp_ack_update_rtt``), and whether any has arrived as it was sent first.
        """
        rtt_ns = first_rtt_ns = late_rtt_ns = -1
        delivered = 0
        is_first = False
        for packet in self._whole_or_parts(self.receiver.arrived_since(self._seen, until)):
            if packet.is_acknowledged:
                continue
            packet.is_acknowledged = True
            packet.is_lost = False
            delivered += packet.segments
            self._beyond_gap += packet.segments
            if self._bbr is not None:
                self._bbr.arrived(packet, now_ns)
            if packet.in_flight:
                packet.in_flight = False
                self.in_flight -= packet.segments
            took_ns = now_ns - packet.sent_ns
            if packet.resent and not packet.came_again:
                # Time stamps tell that it has come as it was sent first.
                is_first = True
                late_rtt_ns = now_ns - packet.first_sent_ns
                continue
            if packet.resent:
                late_rtt_ns = took_ns
            else:
                is_first = True
                rtt_ns = took_ns
                first_rtt_ns = took_ns if first_rtt_ns < 0 else first_rtt_ns
            if (packet.sent_ns, packet.end) > (self._rack_ns, self._rack_end):
                self._rack_ns, self._rack_end, self._rack_rtt_ns = packet.sent_ns, packet.end, took_ns
        if rtt_ns < 0:
            rtt_ns = first_rtt_ns = late_rtt_ns
        return delivered, first_rtt_ns, rtt_ns, is_first

    def _advance(self, now_ns: int, next_byte: int) -> None:
        outstanding = self._outstanding
        while outstanding and outstanding[0].end <= next_byte:
            packet = outstanding.popleft()
            self._out -= packet.segments
            self._beyond_gap -= packet.segments
        self._una = next_byte
        self._rto_from_ns = self._probe_from_ns = now_ns
        self._backoff = 0
        if self._probed >= 0 and next_byte >= self._probed + (self._probe_resent >= 0):
            # More than the probe has arrived, and no duplicate of it: what it repeated was lost.
            if self._probe_resent >= 0 and self._state is _State.OPEN:
                self.congestion.threshold = self.congestion.reduced()
                if self._bbr is None:
                    self.congestion.window = self.congestion.threshold
            self._probed = self._probe_resent = _NEVER

    def _find_lost(self, now_ns: int) -> int:
        """Take packets for lost that were sent before one that has arrived (RACK). Return how many."""
        by_time, found = self._by_time, 0
        self._reorder_ns = _NEVER
        if self._rack_ns < 0:
            return 0
        at_once = self._state is not _State.OPEN or self._beyond_gap >= _DUPLICATES
        wait_ns = 0 if at_once else self._round_trips.reordering_ns
        while by_time:
            packet, sent_ns = by_time[0]
            if packet.is_acknowledged or packet.sent_ns != sent_ns or not packet.in_flight:
                by_time.popleft()
                continue
            if (sent_ns, packet.end) > (self._rack_ns, self._rack_end):
                break
            left_ns = sent_ns + self._rack_rtt_ns + wait_ns - now_ns
            if left_ns > 0:
                self._reorder_ns = now_ns + left_ns
                break
            by_time.popleft()
            self._mark_lost(packet)
            found += packet.segments
        return found

    def _mark_lost(self, packet: Packet) -> None:
        packet.is_lost = True
        if packet.in_flight:
            packet.in_flight = False
            self.in_flight -= packet.segments
        self._lost.append(packet)

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
            if self._window_limits:
                congestion.acknowledged(now_ns, delivered)
            self._used_tick = self._ticks.count(now_ns)

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
        timeout_ticks = self._timeout_ticks
        idle_ticks = self._ticks.count(now_ns) - self._ticks.count(self._last_sent_ns)
        if idle_ticks <= timeout_ticks:
            return
        congestion.threshold = max(congestion.threshold, congestion.window * 3 // 4)
        least = min(INITIAL_SEGMENTS, congestion.window)
        window = congestion.window
        while (idle_ticks := idle_ticks - timeout_ticks) > 0 and window > least:
            window //= 2
        congestion.window = max(window, least)
        self._used, self._used_tick = 0, self._ticks.count(now_ns)

    def _arm(self, now_ns: int) -> None:
        """Set the timer: for a probe, a retransmission timeout, or packets that may only be late."""
        if not self._outstanding:
            self._due_ns = _NEVER
            return
        due_ns = self._ticks.goes_off_ns(self._rto_from_ns, self._round_trips.timeout_ns << self._backoff)
        if self._waits_for_probe:
            wait_ns = self._round_trips.probe_ns(self._out)
            due_ns = min(due_ns, self._ticks.goes_off_ns(self._probe_from_ns, wait_ns))
        if self._reorder_ns >= 0:
            due_ns = min(due_ns, late_segment_ns(self._ticks, now_ns, self._reorder_ns - now_ns))
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
            self._push(now_ns)
        elif self._waits_for_probe:
            # Also where a timeout would come before: there is one timer, and it is first that of a probe (Linux:
            # tcp_schedule_loss_probe).
            if self._probed < 0:
                self._probe(now_ns)
            else:
                # A probe is still out. Then the timeout counts from when the first packet was sent (tcp_rearm_rto).
                self._rto_from_ns = max(self._outstanding[0].sent_ns, now_ns + 1 - self._round_trips.timeout_ns)
            self._probe_from_ns = _NEVER
        else:
            self._time_out(now_ns)
        self._arm(now_ns)
        self._progressed(now_ns)

    @property
    def _waits_for_probe(self) -> bool:
        return self._state is _State.OPEN and not self._beyond_gap and self._probe_from_ns >= 0

    def _probe(self, now_ns: int) -> None:
        """Send something to learn whether the last packets have arrived (RFC 8985, section 7)."""
        self._probed = self.sent
        self._rto_from_ns = now_ns
        size_bytes = min(self._written.first_bytes, self._segment_bytes)
        if size_bytes and self.sent + self._segment_bytes - self._una <= self._window_bytes:
            packet = self._begin(size_bytes, now_ns)
        else:
            packet = self._last_segment()
            packet.resent = True
            self._probe_resent = 1
        self._probed = self.sent
        self._transmit(packet, now_ns)

    def _last_segment(self) -> Packet:
        """Return the last segment that was sent, as a packet by itself."""
        packet = self._outstanding[-1]
        if packet.segments == 1:
            return packet
        before, last = self._cut(packet, packet.segments - 1)
        for place, (sent, sent_ns) in enumerate(self._by_time):
            if sent is packet:
                self._by_time[place] = before, sent_ns
        return last

    def _cut(self, packet: Packet, segments: int) -> tuple[Packet, Packet]:
        """Return the first ``segments`` of a packet that was sent, and the rest, which take its place everywhere."""
        parts = packet.cut(segments, self._segment_bytes)
        place = self._outstanding.index(packet)
        self._outstanding[place] = parts[0]
        self._outstanding.insert(place + 1, parts[1])
        self.receiver.expect_parts(packet)
        return parts

    def _time_out(self, now_ns: int) -> None:
        congestion = self.congestion
        if self._state is not _State.TIMED_OUT:
            self._undone = congestion.window, congestion.threshold
            congestion.threshold = congestion.reduced()
            congestion.timed_out(now_ns, self.sent)
        self._state = _State.TIMED_OUT
        self._high = self.sent
        self._lost.clear()
        for packet in self._outstanding:
            if not packet.is_acknowledged:
                self._mark_lost(packet)
        congestion.window = self.in_flight + 1
        self._backoff = min(self._backoff + 1, 8)
        self._rto_from_ns = now_ns
        self._probed = self._probe_resent = _NEVER
        self._push(now_ns)

    def _undo(self) -> None:
        """Take back a timeout: what it took for lost has only come late (Linux: ``tcp_try_undo_loss``)."""
        window, self.congestion.threshold = self._undone
        self.congestion.window = max(self.congestion.window, window)
        self._state = _State.OPEN
        self._lost.clear()
        for packet in self._outstanding:
            if packet.is_lost:
                packet.is_lost, packet.in_flight = False, True
                self.in_flight += packet.segments
