"""Follow what channels send: stretches of bytes, alone or as members of a stream whose rate they share.

Progress is counted in bits x 10^9, so that it is exact. What a stream serves is counted once for all its members: each
ends when the stream has served its threshold. So a change of their rate costs the same for any number of members.
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush
from math import gcd
from typing import Final

from wanbed.flow.channel import Channel
from wanbed.flow.event_queue import Event, EventQueue
from wanbed.flow.line import Line

BITS_NS: Final = 8 * 10**9
_NEVER: Final = -1
VARIED_NUMBERS: Final = 7


class _StretchEnd(Event):
    """The end of a sender's stretch, outdated if the sender ends in another turn by then.

    ``is_due`` is whether it is among the events.
    """

    __slots__ = ("is_due", "sender")

    def __init__(self, sender: Sender) -> None:
        self.turn = 0
        self.following = None
        self.sender = sender
        self.is_due = False

    def happen(self, now_ns: int) -> None:
        """Let the sender end."""
        self.is_due = False
        self.sender.end_stretch(now_ns, self.turn)


class Sender(Channel):
    """A channel while it sends. It has its own rate, or that of the ``Stream`` of which it is a member.

    It sends over ``line``, whose headers make a byte of payload more on the wire. A subclass says what happens when
    the first byte of a stretch leaves, and when the stretch has left. ``history`` is empty without ``keeps_history``.
    """

    def __init__(self, events: EventQueue, line: Line, *, keeps_history: bool = True) -> None:
        super().__init__(line)
        self.events = events
        self._keeps_history = keeps_history
        self.varied = array("q")
        """``VARIED_NUMBERS`` numbers for each stretch of ``history`` in which a stream's rate has changed.

        They are the stretch's number, the stream's, the stream's changes before it and until its end, the threshold as
        whole bytes and the rest, and the bytes of the part that no stretch before it counts.
        """
        # Reduced, because products of up to 62 bits cost least.
        frame, payload = (line.frame_bytes, line.payload_bytes) if line.headers else (1, 1)
        common = gcd(BITS_NS * frame, payload)
        self.bits_ns_per_byte = BITS_NS * frame // common
        self.payload_share = payload // common
        self.is_burst = False
        """True if windows have let out at once what it sends now, so that it is served first come, first served."""
        self.position = 0
        self.stream: Stream | None = None
        self.entry = 0
        self.threshold = 0
        self._seen = 0
        self._begun = False
        self._sends = False
        self._turn = _NEVER
        self._added_turn = _NEVER
        self._rate_bps = 0
        self._since_ns = 0
        self.part_bytes = 0
        self._noted = 0
        # What is left, but for a stretch of which nothing has been counted yet: that is all of it.
        self._left_bits_ns = 0
        self._carried_in_bits_ns = 0
        self._is_whole = False
        # The time of a byte at a rate, as a fraction in its lowest terms: products of small numbers cost least.
        self._reduced_bps = 0
        self._byte_ns = self._of = 1
        self._end = _StretchEnd(self)

    @property
    def rate_bps(self) -> int:
        """The rate at which it sends, 0 while others go first."""
        return self._rate_bps if self.stream is None else self.stream.rate_bps

    def begins(self, now_ns: int, turn: int) -> None:
        """Handle that the first byte of a stretch leaves now. What follows from it, follows in ``turn``."""

    def ends(self, now_ns: int) -> None:
        """Handle that the stretch has left."""

    def queued_bits_ns(self, now_ns: int) -> int:
        """Return the wire bits x 10^9 that its windows have let out and the line has not carried yet."""
        return max(self.left_bits_ns(now_ns), 0) // self.payload_share

    def load(self, size_bytes: int, carried_bits_ns: int, now_ns: int) -> None:
        """Begin a stretch of ``size_bytes``, without a rate yet. ``carried_bits_ns`` is added to what is to be sent."""
        self.part_bytes, self._noted = size_bytes, 0
        self._carried_in_bits_ns, self._is_whole = carried_bits_ns, True
        self._rate_bps, self._since_ns = 0, now_ns
        self._begun, self._sends = False, True

    def left_bits_ns(self, now_ns: int) -> int:
        """Return how much of the stretch has not left yet. It is negative by less than is sent in a nanosecond."""
        stream = self.stream
        if stream is not None:
            return self.threshold - stream.served(now_ns)
        left_bits_ns = self._left_bits_ns
        if self._is_whole:
            left_bits_ns = self.part_bytes * self.bits_ns_per_byte + self._carried_in_bits_ns
        if now_ns == self._since_ns:
            return left_bits_ns
        return left_bits_ns - self._rate_bps * self.payload_share * (now_ns - self._since_ns)

    def send_at(self, rate_bps: int, now_ns: int, turn: int) -> None:
        """Send at ``rate_bps`` from now on, as a member of no stream.

        The stretch ends in ``turn``, or if it has had that rate already, in the turn that it has.
        """
        if rate_bps == self._rate_bps:
            if rate_bps:
                self.arm(now_ns)
            return
        self._change_rate(rate_bps, now_ns, turn)
        if rate_bps:
            self.arm(now_ns)

    def join(self, stream: Stream, now_ns: int, turn: int) -> None:
        """Send at the rate of ``stream`` from now on."""
        rate_bps = stream.rate_bps
        if rate_bps != self._rate_bps:
            self._change_rate(rate_bps, now_ns, turn)
        self.threshold = self.left_bits_ns(now_ns) + stream.served(now_ns)
        self._seen = stream.changes
        self.stream = stream
        stream.add(self)

    def leave(self) -> None:
        """Keep the stream's rate, but no longer as its member. Nothing changes for a member of none."""
        stream = self.stream
        if stream is None:
            return
        stream.remove()
        changes = stream.changes - self._seen
        if changes:
            left_bits_ns = self.threshold - stream.served(stream.since_ns)
            if stream.since_ns > self._since_ns:
                if changes > 1 and self._keeps_history:
                    whole, rest = divmod(self.threshold, self.bits_ns_per_byte)
                    stretch = len(self._stretches) // 3, stream.number, self._seen, stream.changes
                    self.varied.extend((*stretch, whole, rest, self.part_bytes - self._noted))
                self._note(stream.since_ns, left_bits_ns)
            self._left_bits_ns, self._since_ns, self._is_whole = left_bits_ns, stream.since_ns, False
            self._turn = stream.turn + self.position
        self._rate_bps = stream.rate_bps
        self.stream = None

    def arm(self, now_ns: int) -> None:
        """Let the stretch end when it will at its rate."""
        turn = self.turn()
        if turn == self._added_turn:
            return
        self._added_turn = turn
        rate_bps = self.rate_bps
        if self._is_whole and now_ns == self._since_ns and not self._carried_in_bits_ns:
            if rate_bps != self._reduced_bps:
                self._reduce(rate_bps)
            remaining_ns = -(-self.part_bytes * self._byte_ns // self._of)
        else:
            remaining_ns = -(-self.left_bits_ns(now_ns) // (rate_bps * self.payload_share))
        end = self._end
        if end.is_due:
            end = _StretchEnd(self)
        end.is_due = True
        self.events.add_in_turn(now_ns + remaining_ns if remaining_ns > 0 else now_ns, turn, end)

    def _reduce(self, rate_bps: int) -> None:
        """Find out how long a byte takes at a rate."""
        share_bps = rate_bps * self.payload_share
        common = gcd(self.bits_ns_per_byte, share_bps)
        self._reduced_bps = rate_bps
        self._byte_ns, self._of = self.bits_ns_per_byte // common, share_bps // common

    def cut(self, now_ns: int) -> None:
        """End the stretch now: it is what has left of it."""
        self.leave()
        left_bits_ns = self.left_bits_ns(now_ns)
        if now_ns > self._since_ns:
            self._note(now_ns, left_bits_ns)
            self._since_ns = now_ns
        unsent_bytes = max(-(-left_bits_ns // self.bits_ns_per_byte), 0)
        self._left_bits_ns, self._is_whole = left_bits_ns - unsent_bytes * self.bits_ns_per_byte, False
        self.part_bytes -= unsent_bytes
        self._sends, self._turn, self._added_turn = False, _NEVER, _NEVER
        self.ends(now_ns)

    def turn(self) -> int:
        """Return the turn of its end: that of the last change of its rate."""
        stream = self.stream
        if stream is None or stream.changes == self._seen:
            return self._turn
        return stream.turn + self.position

    def _change_rate(self, rate_bps: int, now_ns: int, turn: int) -> None:
        if now_ns > self._since_ns:
            left_bits_ns = self.left_bits_ns(now_ns)
            self._note(now_ns, left_bits_ns)
            self._left_bits_ns, self._since_ns, self._is_whole = left_bits_ns, now_ns, False
        self._rate_bps, self._turn = rate_bps, turn
        if rate_bps and not self._begun:
            self._begun = True
            self.begins(now_ns, turn - 1)

    def _note(self, now_ns: int, left_bits_ns: int) -> None:
        if not self._keeps_history:
            return
        gone = self.part_bytes
        if left_bits_ns > 0:
            gone += -left_bits_ns // self.bits_ns_per_byte
        self._stretches.add_stretch(self._since_ns, now_ns, gone - self._noted)
        self._noted = gone

    def end_stretch(self, now_ns: int, turn: int) -> None:
        """End the stretch, unless it ends in another turn: then its rate has changed since."""
        if not self._sends or turn != self.turn():
            return
        if self.stream is not None:
            self.leave()
        if self._is_whole:
            # All of it has left at one rate, but for less than goes in a nanosecond, which may have been too much.
            if now_ns > self._since_ns:
                self._note(now_ns, 0)
        elif now_ns > self._since_ns:
            left_bits_ns = self.left_bits_ns(now_ns)
            self._note(now_ns, left_bits_ns)
            self._left_bits_ns, self._since_ns = left_bits_ns, now_ns
        self._sends, self._turn, self._added_turn = False, _NEVER, _NEVER
        self.ends(now_ns)


class _FirstEnd(Event):
    """The end of a stream's member that is the first to, outdated if the stream has another ``version`` by then."""

    __slots__ = ("stream", "version")

    def __init__(self, stream: Stream, version: int) -> None:
        self.turn = 0
        self.following = None
        self.stream = stream
        self.version = version

    def happen(self, now_ns: int) -> None:
        """Let the stream's members end."""
        self.stream.end_first(now_ns, self.version)


class Stream:
    """Senders that have one rate whatever happens, and end when the stream has served their thresholds.

    What is served to each is counted in bits x 10^9, in units in which headers take no part (``payload_share``).
    ``times_ns`` and ``rates_bps`` have the rate from each change on. ``number`` tells streams apart.
    """

    __slots__ = (
        "_armed_ns",
        "_asked_ns",
        "_ending",
        "_entries",
        "_events",
        "_served",
        "_served_then",
        "_version",
        "changes",
        "members",
        "number",
        "payload_share",
        "rate_bps",
        "rates_bps",
        "since_ns",
        "times_ns",
        "turn",
    )

    def __init__(self, events: EventQueue, number: int, payload_share: int) -> None:
        self._events = events
        self.number = number
        self.payload_share = payload_share
        self.members = 0
        self.rate_bps = 0
        self.since_ns = 0
        self.changes = 0
        self.turn = 0
        """The turn in which the members' ends were last set; that of each is later by its position."""
        self.times_ns = array("q", [0])
        self.rates_bps = array("q", [0])
        # What has been served at the last change, and at the time for which somebody asked last.
        self._served = self._served_then = 0
        self._asked_ns = 0
        self._ending: list[tuple[int, int, Sender]] = []
        self._entries = 0
        self._armed_ns = -1
        self._version = 0

    def served(self, now_ns: int) -> int:
        """Return the service of a member that has always been there."""
        if now_ns != self._asked_ns:
            self._asked_ns = now_ns
            self._served_then = self._served + self.rate_bps * self.payload_share * (now_ns - self.since_ns)
        return self._served_then

    def set_rate(self, rate_bps: int, now_ns: int, turn: int) -> None:
        """Serve each member at ``rate_bps`` from now on."""
        if rate_bps == self.rate_bps:
            return
        self._served = self._served_then = self.served(now_ns)
        self.rate_bps, self.since_ns, self.turn = rate_bps, now_ns, turn
        self.changes += 1
        self.times_ns.append(now_ns)
        self.rates_bps.append(rate_bps)
        self._armed_ns = -1

    def add(self, sender: Sender) -> None:
        """Let ``sender`` be a member. Call ``arm`` when all of this instant are."""
        self.members += 1
        self._entries += 1
        sender.entry = self._entries
        heappush(self._ending, (sender.threshold, sender.entry, sender))

    def remove(self) -> None:
        """Handle that a member has left."""
        self.members -= 1

    def arm(self, now_ns: int) -> None:
        """Let the member end that will be the first to."""
        first = self._first()
        if first is None:
            return
        if self.members == 1:
            first.arm(now_ns)
            return
        end_ns = now_ns + max(self._remaining_ns(first, now_ns), 0)
        if end_ns != self._armed_ns:
            self._armed_ns = end_ns
            self._version += 1
            self._events.add_first(end_ns, _FirstEnd(self, self._version))

    def _remaining_ns(self, sender: Sender, now_ns: int) -> int:
        return -((self.served(now_ns) - sender.threshold) // (self.rate_bps * self.payload_share))

    def _first(self) -> Sender | None:
        """Return the member with the lowest threshold, having forgotten those that have left."""
        ending = self._ending
        while ending:
            _, entry, sender = ending[0]
            if sender.stream is self and sender.entry == entry:
                return sender
            heappop(ending)
        return None

    def end_first(self, now_ns: int, version: int) -> None:
        """Let all members end that end at this instant, each in its turn among the instant's events."""
        if version != self._version:
            return
        self._armed_ns = -1
        served = self.served(now_ns)
        while (sender := self._first()) is not None and sender.threshold <= served:
            heappop(self._ending)
            sender.arm(now_ns)
        if sender is not None:
            self.arm(now_ns)
