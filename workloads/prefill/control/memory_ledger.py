"""Account for one GPU's memory and its reservations."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SharedGpuMemory:
    """A GPU's total memory and training's peak use of it. Raises ValueError naming the field."""

    total_bytes: int
    training_bytes: int

    def __post_init__(self) -> None:
        if self.training_bytes < 0:
            raise ValueError(f"training_bytes: {self.training_bytes} is negative")
        if self.total_bytes < self.training_bytes:
            raise ValueError(f"total_bytes: {self.total_bytes} is less than training takes, {self.training_bytes}")


class MemoryLedger:
    """Reserves in advance all memory that a request needs on this GPU. Reservations are released in parts.

    ``resident_bytes`` are occupied permanently: the stage's weights and the working space of one chunk. Raises
    ValueError if they do not fit beside training.
    """

    def __init__(self, memory: SharedGpuMemory, resident_bytes: int) -> None:
        self._memory = memory
        self.room_bytes = self.largest_bytes = memory.total_bytes - memory.training_bytes - resident_bytes
        """``room_bytes`` is free now. ``largest_bytes`` is free when nothing is reserved: nothing larger ever fits."""
        if self.room_bytes < 0:
            raise ValueError(
                f"memory: {resident_bytes} bytes of weights and working space do not fit beside the "
                f"{memory.training_bytes} that training takes of {memory.total_bytes}: take a deeper pipeline"
            )
        self._reserved: dict[int, int] = {}
        self.peak_bytes = self.used_bytes
        """The largest value of ``used_bytes`` so far."""

    @property
    def used_bytes(self) -> int:
        """The bytes of training, resident bytes and reserved bytes together."""
        return self._memory.total_bytes - self.room_bytes

    def reserve(self, request: int, size_bytes: int) -> None:
        """Reserve ``size_bytes`` for a request. Raises ValueError if fewer bytes are free."""
        if size_bytes > self.room_bytes:
            raise ValueError(f"request {request}: {size_bytes} bytes where {self.room_bytes} are free")
        self._reserved[request] = self._reserved.get(request, 0) + size_bytes
        self.room_bytes -= size_bytes
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)

    def release(self, request: int, size_bytes: int) -> None:
        """Release a part of a reservation. Raises ValueError if the request has reserved less."""
        left_bytes = self._reserved.get(request, 0) - size_bytes
        if left_bytes < 0:
            raise ValueError(f"request {request}: gives back {size_bytes} bytes, {-left_bytes} more than it holds")
        self._reserved[request] = left_bytes
        self.room_bytes += size_bytes

    def release_all(self, request: int) -> None:
        """Release all that the request has reserved on this GPU."""
        self.room_bytes += self._reserved.pop(request, 0)
