"""The receiving end of a connection: it puts packets in order and acknowledges them.

The rules are those of Linux 6.1 (``net/ipv4/tcp_input.c``, ``tcp_output.c``):

- **Acknowledged at once** are a packet that leaves a gap or fills one, more than a full segment, and the end of what
  was written, which is read at once (``__tcp_ack_snd_check``, ``tcp_cleanup_rbuf``). So is a single segment of a
  connection that is new or was idle, or whose window still grows (``tcp_in_quickack_mode``).
- **Packets of the other direction** carry the acknowledgement if they are sent first. An end that answers soon takes
  its part for a dialogue (``pingpong``): it leaves single segments and single ends to its next packet.
- **Anything else** waits for the next segment, or some ticks (``tcp_send_delayed_ack``).
- **The window** begins with 64 KiB, and grows by twice what arrives (``tcp_grow_window``). If it stays below 64 KiB, it
  is not scaled and has whole segments: at the end that calls, those of before time stamps were agreed on
  (``tcp_select_initial_window``, ``__tcp_select_window``).

An acknowledgement lists all packets that have arrived, as selective acknowledgements do (RFC 2018).
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import PAYLOAD_BYTES
from wanbed.flow.packets.packet import ACKNOWLEDGEMENT_BYTES, UNLIMITED, Acknowledgement, Packet
from wanbed.flow.packets.tick import MET_AT_ONCE, TICK_NS, Ticks
from wanbed.flow.packets.way import Way

_LEAST_DELAY_TICKS: Final = 4
_MOST_DELAY_TICKS: Final = 20
_IDLE_TICKS: Final = 20
_MOST_QUICK: Final = 16
_FIRST_WINDOW_BYTES: Final = 65_535
_UNSCALED_BITS: Final = 15
_TIME_STAMP_BYTES: Final = 12
_GROWS_FROM_BYTES: Final = 128
_FORGOTTEN: Final = 4096

Acknowledged = Callable[[int, Acknowledgement], None]
"""Called when an acknowledgement arrives, with the time."""


class Receiver:
    """The receiving end.

    ``back`` carries acknowledgements, which call ``acknowledged``. ``in_order`` is called when more has arrived without
    gaps, with the time and the first byte that is missing. ``window_bytes`` may be under way at most. ``has_answered``
    is whether this end has said hello at once when the other did, as the one that was called. Full segments have
    ``segment_bytes``.
    """

    __slots__ = (
        "_acknowledged",
        "_answers",
        "_back",
        "_beyond_gap",
        "_came_tick",
        "_delay_ticks",
        "_due_ns",
        "_ends",
        "_events",
        "_expected",
        "_forgotten",
        "_in_order",
        "_is_dialogue",
        "_is_owed",
        "_log",
        "_most_bytes",
        "_next_byte",
        "_quick",
        "_segment_bytes",
        "_ticks",
        "_timer_ns",
        "_unacknowledged_bytes",
        "_window_bytes",
        "_window_step",
    )

    def __init__(
        self,
        events: EventQueue,
        back: Way,
        acknowledged: Acknowledged,
        in_order: Callable[[int, int], None],
        *,
        window_bytes: int = UNLIMITED,
        has_answered: bool = False,
        segment_bytes: int = PAYLOAD_BYTES,
        ticks: Ticks = MET_AT_ONCE,
    ) -> None:
        self._events, self._back, self._ticks = events, back, ticks
        self._segment_bytes = segment_bytes
        self._acknowledged, self._in_order = acknowledged, in_order
        self._answers: Acknowledged | None = None
        self._expected: deque[Packet] = deque()
        self._log: list[Packet] = []
        self._forgotten = 0
        self._next_byte = self._beyond_gap = self._unacknowledged_bytes = 0
        self._due_ns = self._timer_ns = -1
        self._is_owed, self._is_dialogue = False, has_answered
        self._quick, self._delay_ticks, self._came_tick = _MOST_QUICK - 1, _LEAST_DELAY_TICKS, 0
        self._ends = 0
        self._window_step = 1 << max(window_bytes.bit_length() - 1 - _UNSCALED_BITS, 0)
        if self._window_step == 1:
            first_bytes = _whole(window_bytes, segment_bytes + (0 if has_answered else _TIME_STAMP_BYTES))
            is_wide = first_bytes > window_bytes - segment_bytes
            self._window_bytes = first_bytes
            self._most_bytes = first_bytes if is_wide else _whole(window_bytes, segment_bytes)
        else:
            self._most_bytes = window_bytes
            self._window_bytes = window_bytes if window_bytes == UNLIMITED else _FIRST_WINDOW_BYTES

    def answer(self, acknowledged: Acknowledged) -> None:
        """Set what takes the acknowledgements that packets carry: the sending end of the other direction."""
        self._answers = acknowledged

    def greeted(self, packet: Packet) -> None:
        """Handle a packet that has arrived before anything else, and was acknowledged."""
        self._log.append(packet)

    def expect(self, packet: Packet) -> None:
        """Handle that a packet is sent for the first time, whether it arrives or not."""
        self._expected.append(packet)

    def expect_parts(self, packet: Packet) -> None:
        """Handle that a packet which was sent before has been cut into its parts."""
        parts = packet.parts
        if parts is not None and not packet.arrived:
            place = self._expected.index(packet)
            self._expected[place] = parts[0]
            self._expected.insert(place + 1, parts[1])

    def arrive(self, now_ns: int, packet: Packet) -> None:
        """Handle that a packet arrives."""
        if (parts := packet.parts) is not None:
            first, last = parts
            # What the last part carries when it is sent again is not in this packet.
            first.acknowledgement, later, last.acknowledgement = packet.acknowledgement, last.acknowledgement, None
            self.arrive(now_ns, first)
            self.arrive(now_ns, last)
            last.acknowledgement = later
            return
        if packet.arrived:
            self._take_answer(now_ns, packet)
            self._acknowledge(now_ns, is_duplicate=True)
            return
        packet.arrived = True
        self._log.append(packet)
        expected, had_gap = self._expected, self._beyond_gap > 0
        self._beyond_gap += 1
        if expected[0] is not packet:
            self._take_answer(now_ns, packet)
            self._acknowledge(now_ns)
            return
        while expected and expected[0].arrived:
            self._next_byte = expected.popleft().end
            self._beyond_gap -= 1
        size_bytes = packet.end - packet.start
        self._unacknowledged_bytes += size_bytes
        self._is_owed = True
        self._received(now_ns, size_bytes)
        self._take_answer(now_ns, packet)
        if self._is_owed:
            if had_gap or self._unacknowledged_bytes > self._segment_bytes or self._is_prompt(size_bytes):
                self._acknowledge(now_ns)
            else:
                self._delay(now_ns)
        self._in_order(now_ns, self._next_byte)

    def _received(self, now_ns: int, size_bytes: int) -> None:
        """Tell a new or idle connection, and let the window grow (Linux: ``tcp_event_data_recv``)."""
        tick = self._ticks.count(now_ns)
        passed = tick - self._came_tick
        if passed <= _LEAST_DELAY_TICKS // 2:
            self._delay_ticks = self._delay_ticks // 2 + _LEAST_DELAY_TICKS // 2
        elif passed < self._delay_ticks:
            self._delay_ticks = self._delay_ticks // 2 + passed
        elif passed > _IDLE_TICKS:
            self._quick = _MOST_QUICK
        self._came_tick = tick
        self._ends += size_bytes < self._segment_bytes
        if size_bytes >= _GROWS_FROM_BYTES and self._window_bytes < self._most_bytes:
            grown = self._window_bytes + 2 * max(size_bytes, self._segment_bytes)
            self._window_bytes = min(grown, self._most_bytes)
            self._quick |= 1

    def _take_answer(self, now_ns: int, packet: Packet) -> None:
        if self._answers is not None and packet.acknowledgement is not None:
            self._answers(now_ns, packet.acknowledgement)

    def _is_prompt(self, size_bytes: int) -> bool:
        """Tell whether a segment is acknowledged at once, or when it is read, which is at once for an end."""
        if self._is_dialogue:
            return self._ends > 1
        return self._quick > 0 or size_bytes < self._segment_bytes

    def _delay(self, now_ns: int) -> None:
        due_ns = self._ticks.goes_off_ns(now_ns, min(self._delay_ticks, _MOST_DELAY_TICKS) * TICK_NS)
        if 0 <= self._due_ns <= due_ns:
            return
        self._due_ns = due_ns
        if self._timer_ns < 0 or self._timer_ns > due_ns:
            self._timer_ns = due_ns
            self._events.at(due_ns, self._wait_ended, None)

    def arrived_since(self, seen: int, until: int) -> list[Packet]:
        """Return the packets that arrived after the first ``seen``, up to number ``until``. Earlier ones are gone."""
        found = self._log[seen - self._forgotten : until - self._forgotten]
        if until - self._forgotten > _FORGOTTEN:
            del self._log[: until - self._forgotten]
            self._forgotten = until
        return found

    def carried(self, now_ns: int) -> Acknowledgement:
        """Return the acknowledgement that a packet of the other direction carries, which is sent now."""
        acknowledgement = self._told()
        if self._ticks.count(now_ns) - self._came_tick < self._delay_ticks:
            self._is_dialogue = True
        return acknowledgement

    def _wait_ended(self, now_ns: int, _: None) -> None:
        if now_ns != self._timer_ns:
            return
        self._timer_ns = -1
        if self._due_ns < 0:
            return
        if self._due_ns > now_ns:
            self._timer_ns = self._due_ns
            self._events.at(self._due_ns, self._wait_ended, None)
            return
        self._delay_ticks = _LEAST_DELAY_TICKS if self._is_dialogue else min(2 * self._delay_ticks, _MOST_DELAY_TICKS)
        self._is_dialogue = False
        self._acknowledge(now_ns)

    def _acknowledge(self, now_ns: int, *, is_duplicate: bool = False) -> None:
        self._back.send(now_ns, ACKNOWLEDGEMENT_BYTES, self._acknowledged, self._told(is_duplicate=is_duplicate))

    def _told(self, *, is_duplicate: bool = False) -> Acknowledgement:
        """Return what is to be told now, after which no acknowledgement is owed."""
        if self._is_owed and self._quick:
            self._quick -= 1
            if not self._quick:
                self._delay_ticks = _LEAST_DELAY_TICKS
        self._unacknowledged_bytes, self._ends, self._due_ns, self._is_owed = 0, 0, -1, False
        return Acknowledgement(self._next_byte, self._forgotten + len(self._log), is_duplicate, self.told_window_bytes)

    @property
    def told_window_bytes(self) -> int:
        """Return how many bytes more this end takes, in the steps in which it can say so."""
        return -(-self._window_bytes // self._window_step) * self._window_step


def _whole(window_bytes: int, segment_bytes: int) -> int:
    """Return the part of a window that is whole segments, or all of a window of less than one."""
    return window_bytes // segment_bytes * segment_bytes or window_bytes
