"""The events that the I/O thread reports to the rank. Times are CLOCK_MONOTONIC nanoseconds."""

from dataclasses import dataclass

from wanbed.workloads.message import Message
from wanbed.workloads.transport.peer import Peer


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
    """The kernel has accepted every byte of the segments of ring number ``ring`` that are queued so far."""

    ring: int = 0


@dataclass(frozen=True, slots=True)
class BucketSummed:
    """A bucket of gradients, or of what replicas synchronise, holds the sum over ``parts`` of them.

    The sum began when this replica took part.
    """

    start_ns: int
    end_ns: int
    size_bytes: int
    parts: int


@dataclass(frozen=True, slots=True)
class PartReceived:
    """A replica's part of sum ``number`` of a star has arrived; at any replica but the one that gathers, the sum.

    ``parts`` is how many parts it holds. Times are those of the first byte and the last.
    """

    peer: Peer
    number: int
    parts: int
    start_ns: int
    end_ns: int
    payload: memoryview


@dataclass(frozen=True, slots=True)
class PartSent:
    """The kernel has accepted every byte of this replica's part of sum ``number`` of a star."""

    number: int


@dataclass(frozen=True, slots=True)
class ReplicaLost:
    """The connections to a replica of a star have ended. The others go on without it."""

    peer: Peer
    error: Exception


@dataclass(frozen=True, slots=True)
class ReplicaJoins:
    """A replica of a star that was lost is connected again. It waits for what it begins with."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class StateReceived:
    """The state that this rank begins with has arrived, at ``iteration``, after ``sums`` sums of the star."""

    peer: Peer
    iteration: int
    sums: int
    payload: memoryview


@dataclass(frozen=True, slots=True)
class Gathered:
    """Sum ``number`` of a star is complete. ``ranks`` gave its parts, in the order in which these came.

    ``late`` of them were meant for an earlier sum.
    """

    number: int
    ranks: tuple[int, ...]
    late: int


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


_StarEvent = PartReceived | PartSent | ReplicaLost | ReplicaJoins | StateReceived | Gathered
Event = Sent | Received | SegmentReceived | SegmentsSent | BucketSummed | _StarEvent | DeviceSummed | Closed | Failed
