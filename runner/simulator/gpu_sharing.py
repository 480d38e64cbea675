"""What training asks of whoever else uses its GPUs."""

from typing import Protocol


class GpuSharing(Protocol):
    """Training owns its GPUs: it says when it wants one and when it has none of it to do, and always gets it.

    A GPU is known by its training rank. What training does is named by its iteration, its kind as spans have it, and
    its microbatch, -1 for the optimizer.
    """

    @property
    def next_ns(self) -> int | None:
        """When something happens here next, None if nothing ever does."""
        ...

    def handle_next_instant(self) -> None:
        """Let everything happen that is to happen at ``next_ns``."""
        ...

    def wants(self, now_ns: int, rank: int) -> int:
        """Training would use the GPU from now on: when it may, at the earliest now."""
        ...

    def started(self, now_ns: int, rank: int, iteration: int, kind: str, microbatch: int) -> None:
        """Training has the GPU."""
        ...

    def ended(self, now_ns: int, rank: int, iteration: int, kind: str, microbatch: int) -> None:
        """Training does not have it any more, though it may want it again at once."""
        ...

    def idle(self, now_ns: int, rank: int) -> None:
        """Training has nothing to do there for now."""
        ...
