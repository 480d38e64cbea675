"""The interface between the rank's loop and a stage's computation."""

from collections.abc import Sequence
from typing import Protocol

from results.records.span_log import DeviceRecord
from workloads.message import Message
from workloads.schedules.action import Action


class TrainingGpu(Protocol):
    """A GPU that training shares with others, as training sees it. All calls come from training's one thread.

    For each action it claims the GPU, begins, and ends.
    """

    def claim(self) -> None:
        """Block until the GPU is training's, until ``ended``."""

    def began(self, start_ns: int, iteration: int, kind: str, microbatch: int) -> None:
        """Record the start of an action, a CLOCK_MONOTONIC time. No two of an iteration share kind and microbatch."""

    def ended(self, end_ns: int) -> None:
        """Record that the action ended at that CLOCK_MONOTONIC time."""


class MeasuredDevice(Protocol):
    """The device of a real computation, as the rank's loop sees it."""

    @property
    def overlaps_copies(self) -> bool:
        """Whether ``Compute.outgoing`` waits for a copy, so that one other thread should call it meanwhile."""

    def resolve(self) -> Sequence[tuple[int, int]]:
        """Return when the device was busy with each ``perform`` and ``update`` since the last call, in their order.

        In CLOCK_MONOTONIC nanoseconds, never outside of what they returned. Call it once an iteration.
        """

    def record(self) -> DeviceRecord:
        """Return what is known of the device so far."""


class Compute(Protocol):
    """One stage's computation on one GPU, real or replayed.

    The rank calls ``begin`` once an iteration, ``arrived`` for each message that its actions need, ``perform`` for each
    action, ``outgoing`` for what an action has made for a neighbour, and, once the gradients of all replicas have been
    summed in ``gradients``, ``update``; then ``loss`` may be asked. A message is of the iteration that was begun last.
    All calls come from one thread.
    """

    def begin(self, iteration: int) -> None:
        """Begin a new iteration, with gradients of zero."""

    def arrived(self, message: Message, payload: memoryview) -> None:
        """Keep what a neighbour has sent until the action that needs it.

        ``payload`` now belongs to the computation, which releases it in the way given to its constructor.
        """

    def perform(self, action: Action) -> tuple[int, int]:
        """Carry out ``action``, whose inputs have arrived. Returns its start and end in CLOCK_MONOTONIC nanoseconds."""

    def outgoing(self, message: Message) -> memoryview:
        """Return the bytes of ``message``, which an action has just made. They do not change until ``sent``."""

    def sent(self, message: Message) -> None:
        """Release the bytes of ``message``, which have been handed to the kernel."""

    def gradients(self) -> memoryview | None:
        """Return this replica's gradients of the stage, one writable buffer to be summed over the replicas in place.

        Returns None where there is nothing to sum. Call it once an iteration, when all actions have been performed.
        """

    def add(self, total: memoryview, part: memoryview) -> None:
        """Add a part of another replica's gradients to the same part of ours, element by element."""

    def update(self) -> tuple[int, int] | None:
        """Let the optimizer use the summed gradients. Returns its start and end, None where nothing is computed."""

    def loss(self) -> float | None:
        """Return this replica's share of the iteration's mean loss, known at the last stage after all forwards."""
