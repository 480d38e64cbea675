"""The configuration of a star: its replicas, the one that gathers, and the sizes of what is summed."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StarConfig:
    """The star of a stage's replicas, the same at all of them.

    - ``ranks``: those of all replicas. The first one gathers: all others have a connection to it.
    - ``sizes_bytes``: the size of a part and of the sum, for each fragment. Sum n is of fragment n mod their number.
    - ``sums``: how many sums there are in the whole training.
    - ``quorum``: how many replicas a sum waits for. With one, a replica that is lost does not end the others.
    - ``state_bytes``: the size of what a replica gets that comes back; 0 where none does. With it, the rank that
      gathers lets lost replicas connect again.
    - ``connections``: the most connections between two of the ranks.

    Raises ValueError naming the field.
    """

    ranks: tuple[int, ...]
    sizes_bytes: tuple[int, ...]
    sums: int
    quorum: int | None = None
    connections: int = 1
    state_bytes: int = 0

    def __post_init__(self) -> None:
        if len(set(self.ranks)) != len(self.ranks) or len(self.ranks) < 2:
            raise ValueError(f"ranks: {self.ranks} are not two or more ranks, each once")
        if not self.sizes_bytes or min(self.sizes_bytes) < 1:
            raise ValueError(f"sizes_bytes: {self.sizes_bytes} are not sizes of 1 byte at least")
        if self.sums < 0:
            raise ValueError(f"sums: {self.sums} is negative")
        if self.quorum is not None and not 1 <= self.quorum <= len(self.ranks):
            raise ValueError(f"quorum: {self.quorum} is not 1 to {len(self.ranks)}, the number of replicas")
        if self.connections < 1:
            raise ValueError(f"connections: {self.connections} is below 1")
        if self.state_bytes < 0:
            raise ValueError(f"state_bytes: {self.state_bytes} is negative")
        if self.state_bytes and self.quorum is None:
            raise ValueError("state_bytes: replicas come back only where the others go on without them: give a quorum")

    @property
    def gatherer(self) -> int:
        """The rank that gathers."""
        return self.ranks[0]

    @property
    def fragments(self) -> int:
        """The number of fragments."""
        return len(self.sizes_bytes)

    def size_bytes(self, number: int) -> int:
        """Return the size of sum ``number``."""
        return self.sizes_bytes[number % len(self.sizes_bytes)]

    def peers_of(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that ``rank`` exchanges parts and sums with."""
        return self.ranks[1:] if rank == self.gatherer else (self.gatherer,)
