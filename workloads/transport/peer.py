"""Another rank, as a transport knows it."""

from dataclasses import dataclass

UNSENT_BYTES = 16 * 1024


class TransportError(Exception):
    """A transfer cannot be carried out; the message is one line naming the peer and the fault."""


@dataclass(frozen=True)
class Peer:
    """A rank that TCP connections lead to, with its address.

    Of two ranks the one with the lower number calls. ``port`` is where the peer listens for all its callers, None
    where this rank is the one that is called. ``connections`` TCP connections join the two. Each may hold
    ``unsent_bytes`` that are not sent yet, and ``unread_bytes`` of a chunk before it is read. The more, the fewer
    wake-ups; but what is not sent yet may have to wait for a connection slower than others, and where the kernel sets
    the window, what is not read yet takes a part of it.
    """

    rank: int
    host: str
    address: str
    port: int | None
    connections: int
    unsent_bytes: int = UNSENT_BYTES
    unread_bytes: int = 1

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}, {self.address})"
