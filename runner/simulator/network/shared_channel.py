"""Simulate a channel that shares a node pair, trunk or port with others, so that its rate changes while it sends."""

from collections import deque
from typing import Final, NamedTuple

from wanbed.runner.simulator.network.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.runner.simulator.network.stream import Sender
from wanbed.runner.tcp.channel import Accepted, Left
from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.flow_model.striping import Striping
from wanbed.testbed.network.flow_model.window import BOUNDED, Delay, TcpWindow

_MOST_STEPS: Final = 1000
"""The most windows of a transfer that are followed one by one only because the opposite direction may delay them."""


class _Transfer(NamedTuple):
    """A queued transfer: the arguments of ``Channel.queue``."""

    available_ns: int
    size_bytes: int
    left: Left
    striping: Striping | None
    accepted: Accepted | None
    at_once: bool


class SharedChannel(Sender):
    """A ``Channel`` of ``flow`` whose rate depends on the other senders."""

    def __init__(
        self,
        line: Line,
        window: TcpWindow,
        flow: NodePairFlow,
        capacity: SharedCapacity,
        *,
        keeps_history: bool = True,
    ) -> None:
        super().__init__(capacity.events, headers=line.headers, keeps_history=keeps_history)
        capacity.expect(flow)
        self.line = line
        self._flow = flow
        self._window = window
        self._open_bytes = line.payload_per_rtt()
        self._openly = False
        self._delay: Delay | None = None
        self.capacity = capacity
        self._waiting: deque[_Transfer] = deque()
        self._unsent = 0
        self._queued = 0
        self._steps = 0
        self._first_ns: int | None = None
        self._let_out_ns: int | None = None
        self._is_accepted = False
        self._limited = False
        self._part_ns: int | None = None
        self._carried_bits_ns = 0

    def arrival_ns(self, left_ns: int) -> int:
        """Return what ``Channel.arrival_ns`` describes."""
        return left_ns + self.line.latency_ns

    def report_ns(self, now_ns: int) -> int:
        """Return what ``Channel.report_ns`` describes."""
        return now_ns + self.line.return_ns

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
        self.events.at(max(transfer.available_ns, self.events.now_ns), self._go_on, None)

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
            self.events.at(self._window.next_credit_ns, self._go_on, None)
            return
        part = self._unsent if self._openly else min(self._unsent, allowed)
        self._limited = part == allowed
        part = self._report_if_accepted(allowed, part, now_ns)
        if self._let_out_ns is None:
            self._let_out_ns = now_ns
        self._part_ns, self._delay = None, None if alone else Delay()
        self.load(part, self._carried_bits_ns, now_ns)
        self.is_burst = self._waiting[0].at_once and part <= allowed < BOUNDED
        self.capacity.begin(self, self._flow, now_ns)

    def _report_if_accepted(self, allowed: int, part: int, now_ns: int) -> int:
        """Call ``accepted`` if the windows let out all that is left. Return ``part``, or where it ends if they will."""
        accepted = self._waiting[0].accepted
        if accepted is None or self._is_accepted or allowed >= BOUNDED:
            return part
        # Bytes that windows let out beyond what keeps the line busy wait in queues on the path.
        waits = max(allowed - self._open_bytes, 0) if self._openly else allowed
        if self._unsent <= waits and self._window.lets_out(self._waiting[0].striping, now_ns):
            self._is_accepted = True
            accepted(now_ns)
        elif self._openly and self._unsent > waits:
            return self._unsent - waits
        return part

    def begins(self, now_ns: int, turn: int) -> None:
        """Handle that the first byte of a stretch leaves now."""
        self._part_ns = now_ns
        if self._first_ns is None:
            self._first_ns = now_ns
        if self._delay is not None:
            self.events.at_turn(now_ns + self.line.latency_ns, turn, self._set_delay, (self._delay, False))

    def _set_delay(self, now_ns: int, what: tuple[Delay, bool]) -> None:
        """Set how long the first acknowledgement of a stretch, which is sent now, waits at the other end."""
        delay, asked_before = what
        later_ns = self._flow.acknowledged_later_ns(now_ns)
        if later_ns is None and not asked_before:
            # The opposite direction continues at this instant, and gets its rate at the end of it.
            self.events.at(now_ns, self._set_delay, (delay, True))
        delay.later_ns = later_ns or 0

    def queued_bits_ns(self, now_ns: int) -> int:
        """Return the value that ``Sender.queued_bits_ns`` describes."""
        # Acknowledgements during the stretch, also of its own first bytes, have let out more bytes behind it.
        begun_ns = now_ns if self._part_ns is None else self._part_ns
        acknowledged_ns = max(now_ns - begun_ns - self._window.rtt_ns, 0)
        own = min(self.rate_bps * self.payload_share * acknowledged_ns // self.bits_ns_per_byte, self.part_bytes)
        allowed = self._window.allowance_without_growth(now_ns) + own
        behind = min(self._unsent + self._queued, allowed) - self.part_bytes
        let_out = max(self.left_bits_ns(now_ns), 0) + max(behind, 0) * self.bits_ns_per_byte
        return let_out // self.payload_share

    def ends(self, now_ns: int) -> None:
        """Handle that the stretch has left: begin the next one, or end the transfer."""
        assert self._part_ns is not None
        if self._openly:
            self._window.sent_openly(now_ns, self.part_bytes)
        else:
            self._window.sent(self._part_ns, now_ns, self.part_bytes, self._delay, limited=self._limited)
        self._unsent -= self.part_bytes
        # A stretch ends on a whole nanosecond. One that only continues begins with the fraction left by the last one.
        self._carried_bits_ns = self.left_bits_ns(now_ns) if self._openly and self._unsent else 0
        self.capacity.stop(self, self._flow, now_ns)
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
