"""Simulate a channel that shares a node pair, trunk or port with others, so that its rate changes while it sends.

The link of a ``ChangingChannel`` changes too:

- **Latency.** What has left keeps its arrival. netem holds packets for the latency and then serialises them, so that
  they keep their order: where bytes queue, a longer latency delays none of them, unless the queue is shorter than the
  change; after a shorter one they arrive one after the other without a pause, until a pause of the sender has made up
  for the difference.
- **Rate.** What waits leaves at the rate of the moment (``CapacityCourse``).
- **Windows.** A round trip is as long as its latencies are when bytes leave and when they are acknowledged.
- **Outages.** What was let out before arrives. Afterwards nothing does, until TCP has sent again (``Retransmission``).
  Where windows are not modelled there is no TCP either: the transfer goes on as soon as the link is up.
"""

from bisect import bisect_right
from typing import Final, NamedTuple

from wanbed.flow.changing_path import ChangingPath, Retransmission
from wanbed.flow.channel import Known, Transfer
from wanbed.flow.event_queue import Event
from wanbed.flow.line import Line
from wanbed.flow.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.flow.stream import Sender
from wanbed.flow.window import BOUNDED, Delay, TcpWindow
from wanbed.ground.errors import SimulationError

_MOST_STEPS: Final = 1000
"""The most windows of a transfer that are followed one by one only because the opposite direction may delay them."""


_NOT_YET: Final = -1
"""The time of an instant that has not come."""

_NOTHING: Final = Transfer(0, 0)
"""The transfer of a channel that has had none yet."""


class _GoingOn(Event):
    """A channel that goes on: there is at most one such event of it at a time."""

    __slots__ = ("channel",)

    def __init__(self, channel: "SharedChannel") -> None:
        self.turn = 0
        self.following = None
        self.channel = channel

    def happen(self, now_ns: int) -> None:
        """Let the channel go on."""
        self.channel.go_on(now_ns)


class _Acknowledging(Delay):
    """The first acknowledgement of a stretch, which is sent now and may have to wait at the other end.

    ``asked_before`` is whether the opposite direction had no rate yet at this instant.
    """

    __slots__ = ("asked_before", "channel")

    def __init__(self, channel: "SharedChannel") -> None:
        self.turn = 0
        self.following = None
        self.later_ns = self.noticed_ns = 0
        self.channel = channel
        self.asked_before = False

    def happen(self, now_ns: int) -> None:
        """Set for how long it waits."""
        self.channel.set_delay(now_ns, self)


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
        super().__init__(capacity.events, line, keeps_history=keeps_history)
        capacity.expect(flow)
        self._flow = flow
        self._window = window
        self._open_bytes = line.payload_per_rtt()
        self._openly = False
        self._acknowledging: _Acknowledging | None = None
        self.capacity = capacity
        # What is queued, from the transfer that is under way to the last one, which counts only if there is one.
        self._first: Transfer | None = None
        self._last = self._current = _NOTHING
        self._unsent = 0
        self._queued = 0
        self._is_in_flow = False
        self._steps = 0
        self._first_ns = _NOT_YET
        self._let_out_ns = _NOT_YET
        self._is_accepted = False
        self._limited = False
        self._part_ns = _NOT_YET
        self._carried_bits_ns = 0
        self._going_on = _GoingOn(self)

    def send(self, transfer: Transfer) -> None:
        """Queue a transfer as ``Channel.send`` says. It is told its times when they have come."""
        self._queued += transfer.size_bytes
        if self._first is None:
            self._last = transfer
            self._await_next(transfer)
        else:
            self._last.following = transfer
            self._last = transfer

    def request(self, now_ns: int, size_bytes: int, known: Known) -> None:
        """Send a request as ``Channel.request`` says, from ``now_ns`` on if transfers are under way."""
        if self._first is not None or not self.line.headers:
            known(self.arrival_ns(now_ns))
            return

        def left(_: int, end_ns: int) -> None:
            known(self.arrival_ns(end_ns))

        self.queue(now_ns, size_bytes, left)

    def _await_next(self, transfer: Transfer) -> None:
        self._first = self._current = transfer
        self._unsent = transfer.size_bytes
        self._queued -= self._unsent
        self._steps = 0
        self._first_ns = self._let_out_ns = _NOT_YET
        self._is_accepted = False
        available_ns, now_ns = transfer.available_ns, self.events.now_ns
        self.events.add(available_ns if available_ns > now_ns else now_ns, self._going_on)

    def go_on(self, now_ns: int) -> None:
        """Begin the next stretch that the window allows, or wait until the window allows one."""
        if not self._unsent:
            self._end_transfer(now_ns)
            return
        allowed = self._window.allowance(now_ns)
        self._steps += 1
        alone = self._flow.opposite is None or self._steps > _MOST_STEPS
        self._openly = openly = alone and self._open_bytes > 0 and self._window.opens_for(self._open_bytes)
        if allowed <= 0 and not openly:
            self._stop(now_ns)
            self.events.add(self._window.next_credit_ns, self._going_on)
            return
        part = self._unsent
        if not openly and allowed < part:
            part = allowed
        self._limited = part == allowed
        transfer = self._current
        if transfer.is_watched and not self._is_accepted and allowed < BOUNDED:
            part = self._report_if_accepted(transfer, allowed, part, now_ns)
        if self._let_out_ns < 0:
            self._let_out_ns = now_ns
        self._part_ns, self._acknowledging = _NOT_YET, None if alone else _Acknowledging(self)
        self.load(part, self._carried_bits_ns, now_ns)
        self.is_burst = transfer.at_once and part <= allowed < BOUNDED
        self._begin(now_ns)

    def _begin(self, now_ns: int) -> None:
        """Send what has been loaded, as one of the flow's channels."""
        if self._is_in_flow:
            self.capacity.begin_again(self, self._flow, now_ns)
        else:
            self._is_in_flow = True
            self.capacity.begin(self, self._flow, now_ns)

    def _stop(self, now_ns: int) -> None:
        """Send nothing for now."""
        if self._is_in_flow:
            self._is_in_flow = False
            self.capacity.stop(self, self._flow, now_ns)

    def _report_if_accepted(self, transfer: Transfer, allowed: int, part: int, now_ns: int) -> int:
        """Call ``accepted`` if the windows let out all that is left. Return ``part``, or where it ends if they will."""
        # Bytes that windows let out beyond what keeps the line busy wait in queues on the path.
        waits = max(allowed - self._open_bytes, 0) if self._openly else allowed
        if self._unsent <= waits and self._window.lets_out(transfer.striping, now_ns):
            self._is_accepted = True
            transfer.accepted(now_ns)
        elif self._openly and self._unsent > waits:
            return self._unsent - waits
        return part

    def begins(self, now_ns: int, turn: int) -> None:
        """Handle that the first byte of a stretch leaves now."""
        self._part_ns = now_ns
        if self._first_ns < 0:
            self._first_ns = now_ns
        acknowledging = self._acknowledging
        if acknowledging is not None:
            self.events.add_in_turn(now_ns + self.line.latency_ns, turn, acknowledging)

    def set_delay(self, now_ns: int, acknowledging: _Acknowledging) -> None:
        """Set how long the first acknowledgement of a stretch, which is sent now, waits at the other end."""
        later_ns = self._flow.acknowledged_later_ns(now_ns)
        if later_ns < 0 and not acknowledging.asked_before:
            # The opposite direction continues at this instant, and gets its rate at the end of it.
            acknowledging.asked_before = True
            self.events.add(now_ns, acknowledging)
        acknowledging.later_ns = acknowledging.noticed_ns = max(later_ns, 0)

    def queued_bits_ns(self, now_ns: int) -> int:
        """Return the value that ``Sender.queued_bits_ns`` describes."""
        # Acknowledgements during the stretch, also of its own first bytes, have let out more bytes behind it.
        begun_ns = now_ns if self._part_ns < 0 else self._part_ns
        acknowledged_ns = max(now_ns - begun_ns - self._window.rtt_ns, 0)
        own = min(self.rate_bps * self.payload_share * acknowledged_ns // self.bits_ns_per_byte, self.part_bytes)
        allowed = self._window.allowance_without_growth(now_ns) + own
        behind = min(self._unsent + self._queued, allowed) - self.part_bytes
        let_out = max(self.left_bits_ns(now_ns), 0) + max(behind, 0) * self.bits_ns_per_byte
        return let_out // self.payload_share

    def ends(self, now_ns: int) -> None:
        """Handle that the stretch has left: begin the next one, or end the transfer."""
        if self._openly:
            self._window.sent_openly(now_ns, self.part_bytes)
        else:
            self._window.sent(self._part_ns, now_ns, self.part_bytes, self._acknowledging, limited=self._limited)
        self._unsent -= self.part_bytes
        # A stretch ends on a whole nanosecond. One that only continues begins with the fraction left by the last one.
        self._carried_bits_ns = self.left_bits_ns(now_ns) if self._unsent and self._openly else 0
        if self._unsent:
            self.go_on(now_ns)
        else:
            self._stop(now_ns)
            self._end_transfer(now_ns)

    def _end_transfer(self, now_ns: int) -> None:
        transfer = self._current
        following = transfer.following
        first_ns = now_ns if self._first_ns < 0 else self._first_ns
        # Each connection sends its first round when its window lets it out, although the whole transfer waits in line.
        let_out_ns = now_ns if self._let_out_ns < 0 else self._let_out_ns
        last_ns = self._window.last_byte_ns(let_out_ns, now_ns, transfer.striping, self.line)
        if following is None:
            self._first = None
        if transfer.is_watched and not self._is_accepted:
            transfer.accepted(last_ns)
        transfer.left(first_ns, last_ns)
        if following is not None:
            self._await_next(following)


_NEVER: Final = 1 << 62


class _Loss(NamedTuple):
    """The loss in an outage: of bytes, or of acknowledgements of bytes that have arrived (``has_arrived``).

    ``first_ns`` is when the first of the bytes left that are not acknowledged, ``acknowledged_ns`` when the last
    acknowledgement came. Acknowledgements came ``queued_ns`` later than after a round trip, because bytes queued.
    """

    first_ns: int
    acknowledged_ns: int
    queued_ns: int
    has_arrived: bool


class ChangingChannel(SharedChannel):
    """A ``Channel`` over ``path``. ``retransmission`` is None where there is no TCP."""

    def __init__(
        self,
        path: ChangingPath,
        window: TcpWindow,
        flow: NodePairFlow,
        capacity: SharedCapacity,
        retransmission: Retransmission | None,
    ) -> None:
        super().__init__(path.line(0), window, flow, capacity)
        self._path = path
        self._fails = path.fails
        self._retransmission = retransmission
        next_ns = path.next_change_ns(0)
        self._next_ns: int = _NEVER if next_ns is None else next_ns
        self._armed = False
        self._sends_first = True
        self._begins_ns = 0
        self._free_ns = 0
        # What the line had accepted before it failed and has not carried yet, and whether that is being sent.
        self._accepted_bytes = 0
        self._sends_accepted = False
        # What was lost of what was sent openly before the link failed.
        self._cut_off: _Loss | None = None
        # From each of these times on, what leaves takes so long to arrive.
        self._from_ns = [0]
        self._takes_ns = [self.line.latency_ns]

    def arrival_ns(self, left_ns: int) -> int:
        """Return when a byte arrives, as ``Channel.arrival_ns`` does."""
        return left_ns + self._takes_ns[max(bisect_right(self._from_ns, left_ns), 1) - 1]

    def report_ns(self, now_ns: int) -> int:
        """Return when a report arrives, as ``Channel.report_ns`` does."""
        back = self._path.back
        if self._retransmission is not None and not back.at(now_ns).up:
            now_ns = self._retransmission.mirrored().resumes_ns(
                now_ns, now_ns, self._window.timeout_ns, self._window.rtt_ns
            )
        return now_ns + back.at(now_ns).latency_ns

    def _waiting_bytes(self, now_ns: int) -> int:
        """Return the bytes that the line has accepted and not carried yet."""
        left_bytes = max(-(-self.left_bits_ns(now_ns) // self.bits_ns_per_byte), 0)
        allowed = self._window.open_bytes
        if allowed >= BOUNDED:
            return 0
        if self._accepted_bytes or (self._sends_first and not self._openly):
            return left_bytes
        # Acknowledgements let out the rest as fast as the line carries it.
        return min(left_bytes, max(allowed - self._open_bytes, 0))

    def go_on(self, now_ns: int) -> None:
        """Go on as a ``SharedChannel`` does, if the link is up."""
        self._meet_changes(now_ns)
        if self._accepted_bytes:
            self._send_accepted(now_ns)
            return
        if self._unsent and self._fails and not self._passes(now_ns):
            self._stop(now_ns)
            return
        self._sends_first = not self._free_ns or (not self._window.in_flight_bytes and now_ns > self._free_ns)
        self._begins_ns = now_ns
        super().go_on(now_ns)

    def _send_accepted(self, now_ns: int) -> None:
        self._sends_accepted = True
        self._limited = self.is_burst = False
        self._part_ns, self._acknowledging = _NOT_YET, None
        self.load(self._accepted_bytes, self._carried_bits_ns, now_ns)
        self._begin(now_ns)

    def _watch(self, now_ns: int) -> None:
        """Look at what is being sent again when the link changes."""
        if not self._armed and self._sends and (self._openly or self._fails) and self._next_ns < _NEVER:
            self._armed = True
            self.events.at(max(self._next_ns, now_ns), self._link_changes, None)

    def _link_changes(self, now_ns: int, _: None) -> None:
        self._armed = False
        if not self._sends or self._part_ns < 0:
            return
        waiting = self._waiting_bytes(now_ns)
        self._meet_changes(now_ns)
        if self._retransmission is None:
            self._take(now_ns, max(self.line.latency_ns, self._takes_ns[-1]))
        if self._fails and not self._accepted_bytes and self._is_cut_off(now_ns):
            self._accepted_bytes = waiting
            self.cut(now_ns)
        elif self._openly and not self._window.opens_for(self._open_bytes):
            self.cut(now_ns)
        else:
            self._watch(now_ns)

    def _is_cut_off(self, now_ns: int) -> bool:
        """Return whether nothing more is sent now because the link has failed, and note what is to be sent again."""
        is_up, back = self._path.is_up(now_ns), self._path.back.at(now_ns)
        if self._retransmission is None or not self._openly:
            return not is_up
        if is_up and back.up:
            return False
        line, window = self.line, self._window
        open_bytes = window.open_bytes
        queued_ns = 0 if open_bytes >= BOUNDED else max(line.duration_ns(open_bytes) - window.rtt_ns, 0)
        answered_ns = now_ns + back.latency_ns
        rtt_ns = window.rtt_ns + queued_ns
        if back.up:
            self._cut_off = _Loss(now_ns, now_ns + rtt_ns, queued_ns, has_arrived=False)
        else:
            self._cut_off = _Loss(answered_ns - rtt_ns, answered_ns, queued_ns, has_arrived=True)
        return True

    def _meet_changes(self, now_ns: int) -> None:
        """Give windows and line the present conditions."""
        while self._next_ns <= now_ns:
            at_ns, before = self._next_ns, self.line
            self.line = line = self._path.line(at_ns)
            held_bytes = line.payload_per_rtt()
            if line.latency_ns != before.latency_ns or line.rate_bps != before.rate_bps:
                self._window.path_changes(line.latency_ns + before.return_ns, held_bytes, at_ns)
            if line.return_ns != before.return_ns:
                self._window.path_changes(line.rtt_ns, held_bytes, at_ns - before.latency_ns)
            self._open_bytes = held_bytes
            next_ns = self._path.next_change_ns(at_ns)
            self._next_ns = _NEVER if next_ns is None else next_ns

    def begins(self, now_ns: int, turn: int) -> None:
        """Begin as a ``SharedChannel`` does, and find out when bytes that leave from now on arrive."""
        super().begins(now_ns, turn)
        self._watch(now_ns)
        before_ns, latency_ns = self._takes_ns[-1], self.line.latency_ns
        idle_ns = self._begins_ns - self._free_ns
        if idle_ns > 0 and not self._sends_accepted:
            self._take(now_ns, max(latency_ns, before_ns - idle_ns))
        elif self._retransmission is None or not self._window.opens_for(self._open_bytes):
            self._take(now_ns, max(latency_ns, before_ns))

    def _take(self, from_ns: int, takes_ns: int) -> None:
        """Let bytes that leave from now on arrive so much later."""
        if takes_ns != self._takes_ns[-1]:
            self._from_ns.append(from_ns)
            self._takes_ns.append(takes_ns)

    def ends(self, now_ns: int) -> None:
        """End as a ``SharedChannel`` does."""
        self._free_ns = now_ns
        if self._sends_accepted:
            self._sends_accepted, self._accepted_bytes = False, 0
        super().ends(now_ns)

    def _passes(self, now_ns: int) -> bool:
        """Return whether what is sent now arrives and windows let it out. If not, go on when they do."""
        retransmission = self._retransmission
        if retransmission is None:
            return self._awaits_link(now_ns)
        window, is_up = self._window, self._path.is_up(now_ns)
        loss, self._cut_off = self._cut_off, None
        if loss is None:
            loss, due_ns = self._unanswered(now_ns)
            if loss is None or (is_up and due_ns > now_ns):
                return True
            if due_ns > now_ns and window.allowance(now_ns) <= 0:
                self.events.add(window.next_credit_ns, self._going_on)
                return False
        self._send_again(loss, retransmission, now_ns)
        return False

    def _awaits_link(self, now_ns: int) -> bool:
        up_ns = self._path.up_ns(now_ns)
        if up_ns is None:
            raise SimulationError(
                f"a link is down from {now_ns / 1e9:.3g} s on for ever, and a transfer waits for it: let it come back"
            )
        if up_ns > now_ns:
            self.events.add(up_ns, self._going_on)
        return up_ns == now_ns

    def _unanswered(self, now_ns: int) -> tuple[_Loss | None, int]:
        """Return the loss that acknowledgements show by missing, and when the next of them would have come."""
        flights = self._window.flights()
        last_ns = max(now_ns, flights[-1][1]) if flights else now_ns
        if not flights or self._path.answers(flights[-1][1]):
            return (None if self._path.is_up(now_ns) else _Loss(now_ns, last_ns, 0, has_arrived=False)), last_ns + 1
        first_ns, due_ns = flights[-1]
        acknowledged_ns = first_ns
        for start_ns, answer_ns in reversed(flights[:-1]):
            if self._path.answers(answer_ns):
                acknowledged_ns = answer_ns
                break
            first_ns, due_ns, acknowledged_ns = start_ns, answer_ns, start_ns
        return _Loss(first_ns, acknowledged_ns, 0, has_arrived=True), due_ns

    @property
    def _queued_ns(self) -> int:
        """The time by which a measured round trip exceeds latencies: half of what a transfer lets out at its begin."""
        open_bytes = self._window.open_bytes
        if open_bytes >= BOUNDED or not self._free_ns:
            return 0
        return self.line.duration_ns(min(open_bytes, self._current.size_bytes)) // 2

    def _send_again(self, loss: _Loss, retransmission: Retransmission, now_ns: int) -> None:
        """Go on when the retransmission arrives, or if the bytes had arrived, when its acknowledgement does."""
        window = self._window
        queued_ns = max(loss.queued_ns, self._queued_ns)
        timeout_ns, rtt_ns = window.timeout_ns + queued_ns, window.rtt_ns + queued_ns
        again_ns = retransmission.resumes_ns(loss.first_ns, loss.acknowledged_ns, timeout_ns, rtt_ns)
        if loss.has_arrived:
            again_ns += window.rtt_ns
        window.lose(again_ns, needless=loss.has_arrived)
        self.events.add(max(again_ns, now_ns), self._going_on)
