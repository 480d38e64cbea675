"""Define a log of packets over one direction of a link: when each was sent, its size, and when it arrived."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LOST_NS = -1
"""The arrival of a packet that did not arrive."""

MAX_SIZE_BYTES = 2**18
"""Larger than any packet, offloaded super-packets included."""

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class PacketFaultError(ValueError):
    """Raised for the first packet that contradicts the ones before it or itself. ``row`` counts from 0."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True)
class PacketLog:
    """Packets of one flow in the order in which they were sent. All arrays have one entry for each packet.

    ``send_ns`` never decreases, and is 0 for the first packet; ``size_bytes`` is above 0; ``arrival_ns`` is after the
    packet's own ``send_ns``, or ``LOST_NS``. Both times are of one clock.

    Raise PacketFaultError for the first packet that breaks this.
    """

    send_ns: Integers
    size_bytes: Integers
    arrival_ns: Integers

    def __post_init__(self) -> None:
        """Check every packet."""
        back = np.flatnonzero(np.diff(self.send_ns) < 0)
        early = np.flatnonzero(self.arrived & (self.arrival_ns < self.send_ns))
        empty = np.flatnonzero((self.size_bytes < 1) | (self.size_bytes > MAX_SIZE_BYTES))
        faults = [
            (int(found[0]) + offset, text)
            for found, offset, text in (
                (back, 1, "was sent before the one of the line above: sort the log by send_s"),
                (early, 0, "arrives before it is sent: relate the clocks of both ends first"),
                (empty, 0, f"has a size that is not 1 to {MAX_SIZE_BYTES} bytes"),
            )
            if len(found)
        ]
        if faults:
            row, text = min(faults)
            raise PacketFaultError(row, text)

    def __len__(self) -> int:
        return len(self.send_ns)

    @property
    def arrived(self) -> Flags:
        """A flag for each packet: True if it arrived."""
        return np.asarray(self.arrival_ns != LOST_NS)

    @property
    def loss(self) -> float:
        """The fraction of packets that did not arrive."""
        return 1.0 - float(np.mean(self.arrived))

    @property
    def delay_ns(self) -> Integers:
        """The delays of the packets that arrived, in the order of sending."""
        arrived = self.arrived
        return np.asarray(self.arrival_ns[arrived] - self.send_ns[arrived])

    @property
    def span_ns(self) -> int:
        """The time from the first packet's sending to the last one's."""
        return int(self.send_ns[-1] - self.send_ns[0])

    def split(self, fraction: float) -> tuple["PacketLog", "PacketLog"]:
        """Return the packets sent in the first ``fraction`` of the time, and the others. The second may be empty."""
        first = int(np.searchsorted(self.send_ns, fraction * self.span_ns, side="right"))
        return self._rows(slice(0, first)), self._rows(slice(first, None))

    def _rows(self, rows: slice) -> "PacketLog":
        return PacketLog(self.send_ns[rows], self.size_bytes[rows], self.arrival_ns[rows])


def from_first(send_ns: Integers, size_bytes: Integers, arrival_ns: Integers) -> PacketLog:
    """Return a log whose clock starts when the first packet is sent. Raise PacketFaultError as ``PacketLog`` does."""
    start_ns = int(send_ns[0])
    arrived = arrival_ns != LOST_NS
    return PacketLog(send_ns - start_ns, size_bytes, np.where(arrived, arrival_ns - start_ns, LOST_NS))
