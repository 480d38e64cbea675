"""Define how training shares its GPUs with other users."""

from typing import Protocol


class GpuSharing(Protocol):
    """The other user of training's GPUs. Training owns them: it reports when it wants one, and always gets it.

    It also reports when it has nothing to do on one. A GPU is known by its training rank. What training does is named
    by its iteration, its kind as spans have it, and its microbatch, -1 for the optimizer.
    """

    @property
    def next_ns(self) -> int | None:
        """The time when something happens here next, None if nothing ever does."""
        ...

    def handle_next_instant(self) -> None:
        """Let everything happen that is to happen at ``next_ns``."""
        ...

    def wants(self, now_ns: int, rank: int) -> int:
        """Handle that training would use the GPU from now on; return when it may, at the earliest now."""
        ...

    def started(self, now_ns: int, rank: int, iteration: int, kind: str, microbatch: int) -> None:
        """Handle that training has the GPU."""
        ...

    def ended(self, now_ns: int, rank: int, iteration: int, kind: str, microbatch: int) -> None:
        """Handle that training does not have the GPU any more, though it may want it again at once."""
        ...

    def idle(self, now_ns: int, rank: int) -> None:
        """Handle that training has nothing to do there for now."""
        ...
