"""Define what training needs of its surroundings: the network that it uses, and another user of its GPUs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from wanbed.runner.simulator.channels.transfers import Transfers
from wanbed.workloads.message import MessageKind


class Norm(Protocol):
    """The all-reduce of the gradient norm over all ranks."""

    def join(self, iteration: int, rank: int, now_ns: int, done: Callable[[int, int], None]) -> None:
        """Handle that the gradients of a rank are complete.

        Call ``done`` with the time at which they were, and the time at which the rank has the norm.
        """


class AllReduce(Protocol):
    """The all-reduce of the gradients of each stage's replicas."""

    def has_gradients(self, stage: int) -> bool:
        """Return whether the replicas of ``stage`` have gradients to all-reduce."""

    def join(self, stage: int, iteration: int, pipeline: int, now_ns: int, done: Callable[[int, int], None]) -> None:
        """Handle that the replica of ``stage`` in ``pipeline`` is ready.

        Call ``done`` with the time at which it was ready, and the time at which it has the result.
        """


@dataclass(frozen=True)
class Surroundings:
    """The network that pipelines train over.

    The keys of ``transfers`` are (pipeline, sending virtual stage, kind of message). ``norm`` is None where optimizer
    steps do not wait for the gradient norm.
    """

    transfers: Mapping[tuple[int, int, MessageKind], Transfers]
    rings: AllReduce
    norm: Norm | None = None


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
