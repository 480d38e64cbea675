"""Simulate a channel that shares a node pair, trunk or port with others, so that its rate changes while it sends.

Progress is counted in bits x 10^9, so that it is exact.
"""

from array import array
from collections import deque
from typing import NamedTuple

from runner.simulator.network.shared_capacity import NodePairFlow, SharedCapacity
from runner.tcp.channel import Accepted, Left
from testbed.network.flow_model.line import FRAME_BYTES, PAYLOAD_BYTES, Line
from testbed.network.flow_model.striping import Striping
from testbed.network.flow_model.window import BOUNDED, Delay, TcpWindow

_BITS_NS = 8 * 10**9
_MOST_STEPS = 1000
"""The most windows of a transfer that are followed one by one only because the opposite direction may delay them."""


class _Transfer(NamedTuple):
    """A queued transfer: the arguments of ``Channel.queue``."""

    available_ns: int
    size_bytes: int
    left: Left
    striping: Striping | None
    accepted: Accepted | None
    at_once: bool


class SharedChannel:
    """A ``Channel`` of ``flow`` whose rate depends on the other senders."""

    def __init__(self, line: Line, window: TcpWindow, flow: NodePairFlow, capacity: SharedCapacity) -> None:
        self.line = line
        self._flow = flow
        self.history = array("q")
        self._window = window
        self._open_bytes = line.payload_per_rtt()
        self._openly = False
        self._delay: Delay | None = None
        self._capacity = capacity
        self._waiting: deque[_Transfer] = deque()
        self._unsent = 0
        self._queued = 0
        self._steps = 0
        self._first_ns: int | None = None
        self._let_out_ns: int | None = None
        self._is_accepted = False
        self._part = 0
        self._limited = False
        self._part_ns: int | None = None
        self._noted = 0
        self._left_bits_ns = 0
        self._carried_bits_ns = 0
        self._rate_bps = 0
        self._since_ns = 0
        self._change = 0
        self.is_burst = False
        frame, payload = (FRAME_BYTES, PAYLOAD_BYTES) if line.headers else (1, 1)
        self._bits_ns_per_byte = _BITS_NS * frame
        self._payload_share = payload

    def queue(
        self,
        available_ns: int,
        size_bytes: int,
        left: Left,
        striping: Striping | None = None,
        *,
        accepted: Accepted | None = None,
        at_once: bool = True,
    ) -> None:
        """Queue a transfer as ``Channel.queue`` says. ``left`` and ``accepted`` are called when it has happened."""
        self._waiting.append(_Transfer(available_ns, size_bytes, left, striping, accepted, at_once))
        self._queued += size_bytes
        if len(self._waiting) == 1:
            self._await_next()

    def _await_next(self) -> None:
        transfer = self._waiting[0]
        self._unsent = transfer.size_bytes
        self._queued -= self._unsent
        self._steps = 0
        self._first_ns = self._let_out_ns = None
        self._is_accepted = False
        self._capacity.events.at(max(transfer.available_ns, self._capacity.events.now_ns), self._go_on, None)

    def _go_on(self, now_ns: int, _: None) -> None:
        """Begin the next stretch that the window allows, or wait until the window allows one."""
        if not self._unsent:
            self._end_transfer(now_ns)
            return
        allowed = self._window.allowance(now_ns)
        self._steps += 1
        alone = self._flow.opposite is None or self._steps > _MOST_STEPS
        self._openly = alone and self._open_bytes > 0 and self._window.opens_for(self._open_bytes)
        if allowed <= 0 and not self._openly:
            self._capacity.events.at(self._window.next_credit_ns, self._go_on, None)
            return
        self._part = self._unsent if self._openly else min(self._unsent, allowed)
        self._limited = self._part == allowed
        self._report_if_accepted(allowed, now_ns)
        if self._let_out_ns is None:
            self._let_out_ns = now_ns
        self._part_ns, self._delay = None, None if alone else Delay()
        self._left_bits_ns, self._noted = self._part * self._bits_ns_per_byte + self._carried_bits_ns, 0
        self._rate_bps, self._since_ns = 0, now_ns
        self.is_burst = self._waiting[0].at_once and self._part <= allowed < BOUNDED
        self._capacity.begin(self, self._flow, now_ns)

    def _report_if_accepted(self, allowed: int, now_ns: int) -> None:
        """Call ``accepted`` if the windows let out all that is left, else end the stretch where they will."""
        accepted = self._waiting[0].accepted
        if accepted is None or self._is_accepted or allowed >= BOUNDED:
            return
        # Bytes that windows let out beyond what keeps the line busy wait in queues on the path.
        waits = max(allowed - self._open_bytes, 0) if self._openly else allowed
        if self._unsent <= waits and self._window.lets_out(self._waiting[0].striping, now_ns):
            self._is_accepted = True
            accepted(now_ns)
        elif self._openly and self._unsent > waits:
            self._part = self._unsent - waits

    def send_at(self, rate_bps: int, now_ns: int) -> None:
        """Send the stretch at ``rate_bps`` from now on."""
        if rate_bps == self._rate_bps:
            return
        self._progress(now_ns)
        self._rate_bps, self._since_ns = rate_bps, now_ns
        self._change += 1
        if not rate_bps:
            return
        if self._part_ns is None:
            self._begin_part(now_ns)
        remaining_ns = -(-self._left_bits_ns // (rate_bps * self._payload_share))
        self._capacity.events.at(now_ns + max(remaining_ns, 0), self._end_part, self._change)

    def _begin_part(self, now_ns: int) -> None:
        """Handle that the first byte of a stretch leaves."""
        self._part_ns = now_ns
        if self._first_ns is None:
            self._first_ns = now_ns
        if self._delay is not None:
            self._capacity.events.at(now_ns + self.line.latency_ns, self._set_delay, (self._delay, False))

    def _set_delay(self, now_ns: int, what: tuple[Delay, bool]) -> None:
        """Set how long the first acknowledgement of a stretch, which is sent now, waits at the other end."""
        delay, asked_before = what
        later_ns = self._flow.acknowledged_later_ns(now_ns)
        if later_ns is None and not asked_before:
            # The opposite direction continues at this instant, and gets its rate at the end of it.
            self._capacity.events.at(now_ns, self._set_delay, (delay, True))
        delay.later_ns = later_ns or 0

    def queued_bits_ns(self, now_ns: int) -> int:
        """Return the value that ``Sender.queued_bits_ns`` describes."""
        gone_bits_ns = self._rate_bps * self._payload_share * (now_ns - self._since_ns)
        # Acknowledgements during the stretch, also of its own first bytes, have let out more bytes behind it.
        begun_ns = now_ns if self._part_ns is None else self._part_ns
        acknowledged_ns = max(now_ns - begun_ns - self._window.rtt_ns, 0)
        own = min(self._rate_bps * self._payload_share * acknowledged_ns // self._bits_ns_per_byte, self._part)
        allowed = self._window.allowance_without_growth(now_ns) + own
        behind = min(self._unsent + self._queued, allowed) - self._part
        let_out = max(self._left_bits_ns - gone_bits_ns, 0) + max(behind, 0) * self._bits_ns_per_byte
        return let_out // self._payload_share

    def _progress(self, now_ns: int) -> None:
        if now_ns == self._since_ns:
            return
        self._left_bits_ns -= self._rate_bps * self._payload_share * (now_ns - self._since_ns)
        gone = self._part - max(-(-self._left_bits_ns // self._bits_ns_per_byte), 0)
        self.history.extend((self._since_ns, now_ns, gone - self._noted))
        self._noted = gone

    def _end_part(self, now_ns: int, change: int) -> None:
        if change != self._change:
            return
        assert self._part_ns is not None
        self._progress(now_ns)
        self._change += 1
        if self._openly:
            self._window.sent_openly(now_ns, self._part)
        else:
            self._window.sent(self._part_ns, now_ns, self._part, self._delay, limited=self._limited)
        self._unsent -= self._part
        # A stretch ends on a whole nanosecond. One that only continues begins with the fraction left by the last one.
        self._carried_bits_ns = self._left_bits_ns if self._openly and self._unsent else 0
        self._capacity.stop(self, self._flow, now_ns)
        if self._unsent:
            self._go_on(now_ns, None)
        else:
            self._end_transfer(now_ns)

    def _end_transfer(self, now_ns: int) -> None:
        transfer = self._waiting.popleft()
        first_ns = now_ns if self._first_ns is None else self._first_ns
        # Each connection sends its first round when its window lets it out, although the whole transfer waits in line.
        let_out_ns = now_ns if self._let_out_ns is None else self._let_out_ns
        others = bool(self._waiting)
        last_ns = self._window.last_byte_ns(let_out_ns, now_ns, transfer.striping, self.line)
        if transfer.accepted is not None and not self._is_accepted:
            transfer.accepted(last_ns)
        transfer.left(first_ns, last_ns)
        if others:
            self._await_next()
