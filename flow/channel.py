"""Simulate a channel: the transfers from one rank to another over their TCP connections."""

from array import array
from collections.abc import Callable
from typing import Final

from wanbed.flow.line import Line
from wanbed.flow.number_rows import NumberRows
from wanbed.flow.striping import Striping
from wanbed.flow.window import BOUNDED, TcpWindow

Left = Callable[[int, int], None]
"""Called once, with the times at which a transfer's first byte leaves and its last byte has left."""

Accepted = Callable[[int], None]
"""Called once, with the time at which the windows have let out a transfer's last byte: the network has it from then on,
not the sender."""

Known = Callable[[int], None]
"""Called once, with the time at which a request arrives, which may be in the future."""


_BATCH: Final = 48
"""There are many channels: few of each one's stretches wait to be packed."""


class Transfer:
    """A transfer of ``size_bytes`` of payload, to be sent from ``available_ns`` on. A subclass says what follows.

    ``striping`` is for a transfer over several connections: its last byte may be delayed by a connection with a small
    window, while later transfers go on. ``at_once`` is False for data that the sender hands over gradually, such as a
    ring's segments, which mixes on the line with other traffic. ``is_watched`` is whether ``accepted`` is to be called.
    ``following`` is the transfer that is queued behind it, which is known to its channel only.
    """

    __slots__ = ("at_once", "available_ns", "following", "is_watched", "size_bytes", "striping")

    def __init__(
        self,
        available_ns: int,
        size_bytes: int,
        striping: Striping | None = None,
        *,
        at_once: bool = True,
        is_watched: bool = False,
    ) -> None:
        self.available_ns = available_ns
        self.size_bytes = size_bytes
        self.striping = striping
        self.at_once = at_once
        self.is_watched = is_watched
        self.following: Transfer | None = None

    def left(self, first_ns: int, last_ns: int) -> None:
        """Handle when its first byte leaves and when its last one has left. It is called once."""

    def accepted(self, at_ns: int) -> None:
        """Handle when the windows have let out its last byte. It is called once, if it ``is_watched``."""


class _ToldTransfer(Transfer):
    """A transfer that calls functions."""

    __slots__ = ("_accepted", "_left")

    def __init__(
        self,
        available_ns: int,
        size_bytes: int,
        left: Left,
        striping: Striping | None,
        accepted: Accepted | None,
        *,
        at_once: bool,
    ) -> None:
        super().__init__(available_ns, size_bytes, striping, at_once=at_once, is_watched=accepted is not None)
        self._left = left
        self._accepted = accepted

    def left(self, first_ns: int, last_ns: int) -> None:
        """Call the function."""
        self._left(first_ns, last_ns)

    def accepted(self, at_ns: int) -> None:
        """Call the function."""
        if self._accepted is not None:
            self._accepted(at_ns)


class Channel:
    """A channel. Transfers leave one after the other in the order in which they are queued, each once it is available.

    ``line`` is the line as it is now. ``history`` has three numbers for each stretch in which bytes
    left at a constant rate: start (ns), end (ns) and payload bytes.
    """

    __slots__ = ("_stretches", "line")

    def __init__(self, line: Line) -> None:
        self.line = line
        self._stretches = NumberRows(_BATCH)

    @property
    def history(self) -> "array[int]":
        """All stretches so far."""
        return self._stretches.numbers

    @property
    def releases_when_accepted(self) -> bool:
        """Tell whether whoever sends goes on once a transfer is accepted, and not when its last byte has left."""
        return False

    def arrival_ns(self, left_ns: int) -> int:
        """Return when a byte arrives that has left at that time."""
        return left_ns + self.line.latency_ns

    def report_ns(self, now_ns: int) -> int:
        """Return when the sender knows what the receiver reports now."""
        return now_ns + self.line.return_ns

    def send(self, transfer: Transfer) -> None:
        """Queue a transfer. It may be told future times."""
        raise NotImplementedError

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
        """Queue a ``Transfer`` that calls ``left`` and ``accepted``."""
        self.send(_ToldTransfer(available_ns, size_bytes, left, striping, accepted, at_once=at_once))

    def request(self, now_ns: int, size_bytes: int, known: Known) -> None:
        """Send a request of that size. It overtakes transfers that have not begun, and keeps a connection from idling.

        Without headers it takes the latency alone, and is not counted.
        """
        raise NotImplementedError


class PrivateChannel(Channel):
    """A channel that shares its line with no other: the times of a transfer are known as soon as it is queued.

    ``whole`` is the line that this one is a part of (default: itself). It determines the rate of bursts, and the bytes
    per RTT that a window must allow to be never limiting, as for a channel that shares ``whole`` with others.
    ``history`` is empty without ``keeps_history``.
    """

    __slots__ = ("_free_ns", "_keeps_history", "_open_bytes", "_whole", "_window", "accepted_ns")

    def __init__(self, line: Line, window: TcpWindow, whole: Line | None = None, *, keeps_history: bool = True) -> None:
        super().__init__(line)
        self._keeps_history = keeps_history
        self._free_ns = 0
        self.accepted_ns = 0
        """The time at which the windows have let out the last byte of the last queued transfer."""
        self._window = window
        self._whole = whole or line
        self._open_bytes = self._whole.payload_per_rtt()

    def copied(self) -> "PrivateChannel":
        """Return a copy in the same state, which changes by itself."""
        copied = PrivateChannel(self.line, self._window.copied(), self._whole, keeps_history=self._keeps_history)
        copied.history.extend(self.history)
        copied._free_ns, copied.accepted_ns = self._free_ns, self.accepted_ns
        return copied

    @property
    def free_ns(self) -> int:
        """The time at which all queued transfers have left, apart from bytes that a small window delays."""
        return self._free_ns

    def send(self, transfer: Transfer) -> None:
        """Queue a transfer as ``Channel.send`` says. It is told its times at once."""
        first_ns, last_ns = self.transmit(transfer.available_ns, transfer.size_bytes, transfer.striping)
        transfer.left(first_ns, last_ns)
        if transfer.is_watched:
            transfer.accepted(self.accepted_ns)

    def request(self, now_ns: int, size_bytes: int, known: Known) -> None:
        """Send a request as ``Channel.request`` says, from ``now_ns`` on if transfers are under way."""
        left_ns = now_ns
        if self.line.headers and self._free_ns <= now_ns:
            left_ns = self.transmit(now_ns, size_bytes)[1]
        known(self.arrival_ns(left_ns))

    def transmit(self, available_ns: int, size_bytes: int, striping: Striping | None = None) -> tuple[int, int]:
        """Queue a transfer. Return when its first byte leaves and when its last byte has left."""
        now_ns = max(available_ns, self._free_ns)
        start_ns: int | None = None
        self.accepted_ns = now_ns
        window, line, unsent = self._window, self.line, size_bytes
        while unsent > 0:
            allowed = window.allowance(now_ns)
            openly = self._open_bytes > 0 and window.opens_for(self._open_bytes)
            if allowed <= 0 and not openly:
                now_ns = window.next_credit_ns
                continue
            start_ns = now_ns if start_ns is None else start_ns
            part = unsent if openly else min(unsent, allowed)
            end_ns = now_ns + line.duration_ns(part)
            self.accepted_ns = self._accepted_ns(now_ns, end_ns, allowed, part, openly=openly)
            if openly:
                window.sent_openly(end_ns, part)
            else:
                window.sent(now_ns, end_ns, part, limited=part == allowed)
            if self._keeps_history:
                self._stretches.add_stretch(now_ns, end_ns, part)
            now_ns, unsent = end_ns, unsent - part
        self._free_ns = now_ns
        start_ns = now_ns if start_ns is None else start_ns
        last_ns = window.last_byte_ns(start_ns, now_ns, striping, self._whole)
        self.accepted_ns += last_ns - now_ns
        return start_ns, last_ns

    def _accepted_ns(self, now_ns: int, end_ns: int, allowed: int, part: int, *, openly: bool) -> int:
        """Return when the windows have let out the last byte of a stretch."""
        if allowed >= BOUNDED:
            return end_ns
        if not openly:
            return now_ns
        # Bytes that windows let out beyond what keeps the line busy wait in queues on the path.
        waits = max(allowed - self._open_bytes, 0)
        return now_ns + self.line.duration_ns(max(part - waits, 0))
