"""The events that the I/O thread reports to the rank. Times are CLOCK_MONOTONIC nanoseconds."""

from dataclasses import dataclass

from workloads.message import Message
from workloads.transport.peer import Peer


@dataclass(frozen=True, slots=True)
class Sent:
    """The kernel has accepted every byte of a message, over all links that share it; its payload is the sender's again.

    ``neighbour`` is the rank of the same pipeline at the other stage.
    """

    peer: Peer
    iteration: int
    message: Message
    start_ns: int
    end_ns: int
    transfer_bytes: int


@dataclass(frozen=True, slots=True)
class Received:
    """A message is there, whole; ``payload`` stays valid until it is given back to the transport.

    ``neighbour`` is the rank of the same pipeline at the other stage, whoever relayed parts of it; the times are those
    of the first byte and the last.
    """

    peer: Peer
    iteration: int
    message: Message
    start_ns: int
    end_ns: int
    payload: memoryview

    @property
    def transfer_bytes(self) -> int:
        """Size of the message."""
        return self.payload.nbytes


@dataclass(frozen=True, slots=True)
class SegmentReceived:
    """A chunk of a ring segment is there: ``payload`` belongs at ``offset`` of the segment of ``segment_bytes``.

    It stays valid until the ring gives it back.
    """

    peer: Peer
    iteration: int
    step: int
    segment_bytes: int
    offset: int
    payload: memoryview


@dataclass(frozen=True, slots=True)
class SegmentsSent:
    """The kernel has accepted every byte of the ring segments queued so far."""


@dataclass(frozen=True, slots=True)
class DeviceSummed:
    """The gradients hold the sum that a collective of torch's was asked for."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Every neighbour has said goodbye, and so has this rank; nothing more follows."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The transport has ended and closed every connection."""

    error: Exception


Event = Sent | Received | SegmentReceived | SegmentsSent | DeviceSummed | Closed | Failed
