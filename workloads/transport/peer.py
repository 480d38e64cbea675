"""Another rank that a transport is connected to."""

from dataclasses import dataclass

UNSENT_BYTES = 16 * 1024


class TransportError(Exception):
    """Raised when a transfer cannot be carried out. The message is one line naming the peer and the fault."""


@dataclass(frozen=True)
class Peer:
    """A rank at the other end of TCP connections.

    - ``port``: where the peer listens for all its callers. Of two ranks the one with the lower number calls; None where
      the peer is the caller.
    - ``connections``: the number of TCP connections between the two ranks.
    - ``unsent_bytes``: how many bytes each connection may hold that are not sent yet. More save wake-ups, but bytes on
      a slow connection then wait while faster ones idle.
    - ``unread_bytes``: how many bytes of a chunk may arrive before they are read. More save wake-ups, but unread bytes
      take a part of the window where the kernel chooses the window.
    - ``keep_warm``: whether connections to it are kept warm, see ``warm_connections``.
    """

    rank: int
    host: str
    address: str
    port: int | None
    connections: int
    unsent_bytes: int = UNSENT_BYTES
    unread_bytes: int = 1
    keep_warm: bool = False

    @property
    def listens_at(self) -> tuple[str, int]:
        """The address and port to call the peer at. Raise ValueError if the peer is the caller."""
        if self.port is None:
            raise ValueError(f"{self} has no port to call it at")
        return self.address, self.port

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}, {self.address})"
