"""The interface through which training shares its GPUs with another user."""

from typing import Protocol


class GpuSharing(Protocol):
    """The other user of training's GPUs. Training has priority: it reports when it wants a GPU, and always gets it.

    Training also reports when it leaves a GPU idle. A GPU is identified by its training rank. An action of training is
    identified by its iteration, its kind as in spans, and its microbatch (-1 for the optimizer).
    """

    @property
    def next_ns(self) -> int | None:
        """The time of the next event of this user, None if there is none."""
        ...

    def handle_next_instant(self) -> None:
        """Handle all events at ``next_ns``."""
        ...

    def wants(self, now_ns: int, rank: int) -> int:
        """Handle that training wants the GPU from now on. Return when it may use it, at the earliest ``now_ns``."""
        ...

    def started(self, now_ns: int, rank: int, iteration: int, kind: str, microbatch: int) -> None:
        """Handle the start of a training action on the GPU."""
        ...

    def ended(self, now_ns: int, rank: int, iteration: int, kind: str, microbatch: int) -> None:
        """Handle the end of a training action on the GPU. Training may want the GPU again at once."""
        ...

    def idle(self, now_ns: int, rank: int) -> None:
        """Handle that training leaves the GPU idle for now."""
        ...
