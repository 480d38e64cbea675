"""Carry one direction of a connection: let bytes out as TCP's windows allow, and deliver them a latency later.

The windows are those of the simulator (``wanbed.flow.window``), for one connection. The sending
program sees them as on a real connection: what they do not let out stays in its socket.
"""

from collections import deque
from collections.abc import Callable

from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.flow.window import BOUNDED, Delay, TcpWindow
from wanbed.testbed.relay.lanes import RelayLane

_PENDING_NS = 1 << 61
"""The delay of an acknowledgement of which it is not known yet when it will be sent."""
_PIECE_NS = 2_000_000
_PIECE_MIN_BYTES, _PIECE_MAX_BYTES = 16 * 1024, 128 * 1024
_SLACK_NS, _SLACK_PART = 500_000, 40
_HELD_BYTES = 1 << 20
"""The most bytes that a flow holds where no window limits it."""

Read = Callable[[int], bytes]
"""Return up to so many bytes that have arrived, b"" at their end. Raise BlockingIOError if there are none now."""

Write = Callable[[memoryview], int]
"""Hand bytes on, and return how many were accepted, 0 if none are accepted now."""


def piece_bytes(line: Line) -> int:
    """Return the most bytes that a flow handles at once: what the line carries in 2 ms, within bounds."""
    if line.rate_bps is None:
        return _PIECE_MAX_BYTES
    return min(_PIECE_MAX_BYTES, max(_PIECE_MIN_BYTES, line.rate_bps * _PIECE_NS // (8 * 10**9)))


class _Piece:
    """Bytes that were let out together at ``let_out_ns``; without bytes, the connection's end.

    ``delay`` is by queues: on the way, and on the way back. HyStart judges only the first bytes of a round by it.
    """

    __slots__ = ("begins_round", "data", "delay", "let_out_ns")

    def __init__(self, data: memoryview, let_out_ns: int, delay: Delay, *, begins_round: bool) -> None:
        self.data = data
        self.let_out_ns = let_out_ns
        self.delay = delay
        self.begins_round = begins_round


class RelayFlow:
    """One direction of one connection, on ``lane``; acknowledgements return over ``back``.

    ``read`` and ``write`` are the two ends. ``finish`` is called when the last byte has been handed on, with True if
    the sender has reset the connection. ``trim_ns`` returns by how much earlier to deliver, for what the machine adds.
    """

    def __init__(
        self,
        lane: RelayLane,
        back: RelayLane,
        window: TcpWindow,
        events: EventQueue,
        *,
        read: Read,
        write: Write,
        finish: Callable[[bool], None],
        trim_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self._lane, self._back = lane, back
        self._window = window
        self._events = events
        self._read, self._write, self._finish = read, write, finish
        self._trim_ns = trim_ns
        self._piece_bytes = piece_bytes(lane.line)
        self._slack_ns = min(_SLACK_NS, lane.line.rtt_ns // _SLACK_PART)
        self._readable = False
        self._ended = False
        self._waits = False
        self._waits_for_receiver = False
        self._armed = False
        self._held_bytes = 0
        self._round_ns = 0
        self._least_wait_ns: int | None = None
        self._arrived: deque[_Piece] = deque()
        self._reset = False

    @property
    def held_bytes(self) -> int:
        """Bytes that were read and not yet handed on."""
        return self._held_bytes

    def readable(self, now_ns: int) -> None:
        """Handle that bytes may have arrived from the sender."""
        self._readable = True
        if not self._waits and not self._waits_for_receiver:
            self._pump(now_ns, now_ns)

    def writable(self, now_ns: int) -> None:
        """Handle that the receiver may accept bytes again."""
        if self._arrived:
            self._hand_on(now_ns)

    def _pump(self, now_ns: int, let_out_ns: int) -> None:
        """Let out what the windows allow, as of ``let_out_ns``, at most a moment ago."""
        self._waits = False
        while self._readable and not self._ended:
            allowed = self._window.allowance(now_ns)
            if allowed >= BOUNDED:
                allowed = _HELD_BYTES - self._held_bytes
                if allowed <= 0:
                    self._waits_for_receiver = True
                    return
            elif allowed <= 0:
                self._waits = True
                self._await_credit()
                return
            try:
                data = self._read(min(allowed, self._piece_bytes))
            except BlockingIOError:
                self._readable = False
                return
            except OSError:
                self._reset = True
                data = b""
            self._let_out(data, let_out_ns, limited=len(data) == allowed)

    def _let_out(self, data: bytes, let_out_ns: int, *, limited: bool) -> None:
        delay = Delay()
        delay.later_ns = _PENDING_NS
        begins_round = let_out_ns >= self._round_ns
        if begins_round:
            self._round_ns = let_out_ns + self._window.rtt_ns
        piece = _Piece(memoryview(data), let_out_ns, delay, begins_round=begins_round)
        if data:
            self._held_bytes += len(data)
            end_ns = let_out_ns + self._lane.line.duration_ns(len(data))
            self._window.sent(let_out_ns, end_ns, len(data), delay, limited=limited)
        else:
            self._ended = True
        self._lane.queue(let_out_ns, len(data), lambda start_ns, end_ns: self._left(piece, start_ns, end_ns))

    def _left(self, piece: _Piece, start_ns: int, end_ns: int) -> None:
        """Handle that a piece leaves: its first byte is acknowledged a round trip after that."""
        waited_ns = start_ns - piece.let_out_ns
        piece.delay.later_ns = waited_ns
        if piece.begins_round and len(piece.data):
            least_ns = waited_ns if self._least_wait_ns is None else min(self._least_wait_ns, waited_ns)
            self._least_wait_ns = least_ns
            piece.delay.noticed_ns += waited_ns - least_ns
        arrival_ns = end_ns + self._lane.line.latency_ns - self._trim_ns()
        self._events.at(arrival_ns, self._arrive, piece)
        self._await_credit()

    def _arrive(self, now_ns: int, piece: _Piece) -> None:
        """Handle that a piece arrives. Its acknowledgement waits behind the bytes of the other direction."""
        waits_ns = self._back.wait_ns(now_ns)
        if waits_ns and len(piece.data):
            piece.delay.later_ns += waits_ns
            if piece.begins_round:
                piece.delay.noticed_ns += waits_ns
        self._arrived.append(piece)
        if len(self._arrived) == 1:
            self._hand_on(now_ns)
        else:
            piece.delay.later_ns = _PENDING_NS

    def _hand_on(self, now_ns: int) -> None:
        """Give the receiver what has arrived, as far as it accepts it."""
        while self._arrived:
            piece = self._arrived[0]
            if not len(piece.data):
                self._finish(self._reset)
                return
            accepted = self._write(piece.data)
            self._held_bytes -= accepted
            if accepted < len(piece.data):
                piece.data = piece.data[accepted:]
                # The receiver does not read, so its window narrows until it does.
                piece.delay.later_ns = _PENDING_NS
                break
            self._arrived.popleft()
            if piece.delay.later_ns == _PENDING_NS:
                piece.delay.later_ns = max(now_ns - piece.let_out_ns - self._lane.line.latency_ns, 0)
        self._await_credit()
        if self._waits_for_receiver and self._held_bytes < _HELD_BYTES:
            self._waits_for_receiver = False
            self._pump(now_ns, now_ns)

    def _await_credit(self) -> None:
        """Go on when the next bytes are acknowledged, a little later: what is acknowledged shortly after counts too."""
        if self._waits and not self._armed and (credit_ns := self._window.next_credit_ns) < _PENDING_NS:
            self._armed = True
            self._events.at(credit_ns + self._slack_ns, self._credit, None)

    def _credit(self, now_ns: int, _: None) -> None:
        self._armed = False
        credit_ns = self._window.next_credit_ns
        if credit_ns <= now_ns:
            self._pump(now_ns, credit_ns)
        else:
            # Meanwhile the acknowledgement was delayed.
            self._await_credit()
