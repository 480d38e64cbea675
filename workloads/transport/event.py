"""The events that the I/O thread reports to the rank. Times are CLOCK_MONOTONIC nanoseconds."""

from dataclasses import dataclass

from workloads.message import Message
from workloads.transport.peer import Peer


@dataclass(frozen=True, slots=True)
class Sent:
    """The kernel has accepted every byte of a message, on all links that carry it. The sender may reuse the payload.

    ``peer`` is the rank of the same pipeline at the other stage. ``start_ns`` is when the first chunk was offered.
    """

    peer: Peer
    iteration: int
    message: Message
    start_ns: int
    end_ns: int
    transfer_bytes: int


@dataclass(frozen=True, slots=True)
class Received:
    """All of a message has arrived. ``payload`` stays valid until it is given back to the transport.

    ``peer`` is the rank of the same pipeline at the other stage, even if cell mates relayed parts of the message. The
    times are those of the first byte and the last.
    """

    peer: Peer
    iteration: int
    message: Message
    start_ns: int
    end_ns: int
    payload: memoryview

    @property
    def transfer_bytes(self) -> int:
        """Size of the message in bytes."""
        return self.payload.nbytes


@dataclass(frozen=True, slots=True)
class SegmentReceived:
    """A chunk of a ring segment has arrived. It belongs at ``offset`` in the segment, which has ``segment_bytes``.

    ``payload`` stays valid until the ring gives it back. ``ring`` is the number of the ring.
    """

    peer: Peer
    iteration: int
    step: int
    segment_bytes: int
    offset: int
    payload: memoryview
    ring: int = 0


@dataclass(frozen=True, slots=True)
class SegmentsSent:
    """The kernel has accepted every byte of the segments of a ring that are queued so far."""


@dataclass(frozen=True, slots=True)
class BucketSummed:
    """A bucket of gradients holds the sum over all replicas. The all-reduce began when the replica took part."""

    start_ns: int
    end_ns: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DeviceSummed:
    """A torch collective has completed an all-reduce: the gradients hold the sum."""


@dataclass(frozen=True, slots=True)
class Closed:
    """This rank and every peer have sent their shutdown. No event follows."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The transport has failed with ``error`` and closed every connection. No event follows."""

    error: Exception


Event = Sent | Received | SegmentReceived | SegmentsSent | BucketSummed | DeviceSummed | Closed | Failed
