"""The receiving end of a connection: it puts packets in order and acknowledges them.

Acknowledged at once are a packet that leaves a gap or fills one, more than a full segment, and less than one: the end
of what was written, which is read at once. A single full segment waits for the next one, or 40 ms (RFC 5681, section
4.2; Linux: ``__tcp_ack_snd_check``, ``tcp_cleanup_rbuf``, ``TCP_ATO_MIN``). An acknowledgement lists all packets that
have arrived, as selective acknowledgements do (RFC 2018).
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from wanbed.runner.resolve.packet_draws import ACKNOWLEDGEMENT_BYTES
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.packets.packet import Packet
from wanbed.runner.simulator.packets.way import Way
from wanbed.testbed.network.flow_model.line import PAYLOAD_BYTES

_DELAY_NS: Final = 40_000_000
_FORGOTTEN: Final = 4096


class Acknowledgement(NamedTuple):
    """The first byte that is missing, how many packets had arrived, and whether one arrived again (RFC 2883)."""

    next_byte: int
    packets: int
    is_duplicate: bool


Acknowledged = Callable[[int, Acknowledgement], None]
"""Called when an acknowledgement arrives, with the time."""


class Receiver:
    """The receiving end.

    ``back`` carries acknowledgements, which call ``acknowledged``. ``in_order`` is called when more has arrived without
    gaps, with the time and the first byte that is missing.
    """

    __slots__ = (
        "_acknowledged",
        "_back",
        "_beyond_gap",
        "_due_ns",
        "_events",
        "_expected",
        "_forgotten",
        "_in_order",
        "_log",
        "_next_byte",
        "_timer_ns",
        "_unacknowledged_bytes",
    )

    def __init__(
        self, events: EventQueue, back: Way, acknowledged: Acknowledged, in_order: Callable[[int, int], None]
    ) -> None:
        self._events, self._back = events, back
        self._acknowledged, self._in_order = acknowledged, in_order
        self._expected: deque[Packet] = deque()
        self._log: list[Packet] = []
        self._forgotten = 0
        self._next_byte = self._beyond_gap = self._unacknowledged_bytes = 0
        self._due_ns = self._timer_ns = -1

    def expect(self, packet: Packet) -> None:
        """Handle that a packet is sent for the first time, whether it arrives or not."""
        self._expected.append(packet)

    def arrive(self, now_ns: int, packet: Packet) -> None:
        """Handle that a packet arrives."""
        if packet.arrived:
            self._acknowledge(now_ns, is_duplicate=True)
            return
        packet.arrived = True
        self._log.append(packet)
        expected, had_gap = self._expected, self._beyond_gap > 0
        if expected[0] is not packet:
            self._beyond_gap += 1
            self._acknowledge(now_ns)
            return
        self._beyond_gap += 1
        while expected and expected[0].arrived:
            self._next_byte = expected.popleft().end
            self._beyond_gap -= 1
        size_bytes = packet.end - packet.start
        self._unacknowledged_bytes += size_bytes
        if had_gap or self._unacknowledged_bytes > PAYLOAD_BYTES or size_bytes < PAYLOAD_BYTES:
            self._acknowledge(now_ns)
        else:
            self._due_ns = now_ns + _DELAY_NS
            if self._timer_ns < 0:
                self._timer_ns = self._due_ns
                self._events.at(self._due_ns, self._wait_ended, None)
        self._in_order(now_ns, self._next_byte)

    def arrived_since(self, seen: int, until: int) -> list[Packet]:
        """Return the packets that arrived after the first ``seen``, up to number ``until``. Earlier ones are gone."""
        found = self._log[seen - self._forgotten : until - self._forgotten]
        if until - self._forgotten > _FORGOTTEN:
            del self._log[: until - self._forgotten]
            self._forgotten = until
        return found

    def _wait_ended(self, now_ns: int, _: None) -> None:
        self._timer_ns = -1
        if self._due_ns < 0:
            return
        if self._due_ns > now_ns:
            self._timer_ns = self._due_ns
            self._events.at(self._due_ns, self._wait_ended, None)
            return
        self._acknowledge(now_ns)

    def _acknowledge(self, now_ns: int, *, is_duplicate: bool = False) -> None:
        self._unacknowledged_bytes, self._due_ns = 0, -1
        acknowledgement = Acknowledgement(self._next_byte, self._forgotten + len(self._log), is_duplicate)
        self._back.send(now_ns, ACKNOWLEDGEMENT_BYTES, self._acknowledged, acknowledgement)
