"""The interface between the rank's loop and a stage's computation."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from wanbed.results.records.span_log import DeviceRecord
from wanbed.workloads.message import Message
from wanbed.workloads.schedules.action import Action
from wanbed.workloads.synchronization.synchronization import Synchronization


class TrainingGpu(Protocol):
    """A GPU that training shares with others, as training sees it. All calls come from the thread that trains.

    For each action that thread calls ``claim``, ``began`` and ``ended``.
    """

    def claim(self) -> None:
        """Block until the GPU is free for training. Training holds it until ``ended``."""

    def began(self, start_ns: int, iteration: int, kind: str, microbatch: int) -> None:
        """Record the start of an action in CLOCK_MONOTONIC ns. Kind and microbatch are unique in an iteration."""

    def ended(self, end_ns: int) -> None:
        """Record the end of the action, in CLOCK_MONOTONIC nanoseconds."""


class MeasuredDevice(Protocol):
    """The device of a real computation, as the rank's loop sees it."""

    @property
    def overlaps_copies(self) -> bool:
        """Return whether messages are copied while the device computes.

        ``Compute.outgoing`` then waits for a copy, so that another thread should call it.
        """

    def begin_copy(self, iteration: int, message: Message, payload: memoryview) -> None:
        """Begin to copy a received payload to the device.

        The transport's thread calls it when the payload is complete, before ``Compute.arrived``, if copies overlap.
        """

    def resolve(self) -> Sequence[tuple[int, int]]:
        """Return the busy interval of the device for each ``perform`` and ``update`` since the last call, in order.

        Start and end are in CLOCK_MONOTONIC nanoseconds and lie within the times that the calls returned. Call it once
        an iteration.
        """

    def record(self) -> DeviceRecord:
        """Return the measurements of the device so far."""


class SynchronizedCompute(Protocol):
    """A computation whose replicas train alone and exchange pseudo-gradients now and then.

    ``Compute.gradients`` is not called. Only ``add_encoded`` may be called by another thread.
    """

    @property
    def rules(self) -> Synchronization:
        """When the replicas exchange pseudo-gradients, and how."""

    def encode(self, fragment: int) -> tuple[int, int] | None:
        """Encode the pseudo-gradient of a fragment. Return its start and end, None if nothing is computed."""

    def encoded(self, fragment: int) -> memoryview:
        """Return the encoded pseudo-gradient, writable, for an all-reduce in place."""

    def add_encoded(self, total: memoryview, part: memoryview) -> None:
        """Add ``part`` of another replica's encoded pseudo-gradient to ``total``, the same part of this one's."""

    def apply(self, fragment: int, parts: int) -> tuple[int, int] | None:
        """Take the outer step of a fragment, whose encoded pseudo-gradient holds the sum of ``parts`` replicas'.

        Return its start and end, None if nothing is computed.
        """

    def state(self, size_bytes: int) -> memoryview:
        """Return a copy of what a replica needs to begin as this one is after its last ``apply``: ``size_bytes``.

        No synchronisation is under way. Raise ValueError if it has another size.
        """

    def take_state(self, state: memoryview) -> None:
        """Begin as the replica that gave ``state``, before any other call. Raise ValueError if its size is another."""


class Compute(Protocol):
    """One stage's computation on one GPU, real or replayed.

    In each iteration the rank calls ``begin``, ``arrived`` for each message that the actions need, ``perform`` for each
    action, ``outgoing`` for each message that an action has computed for a neighbour stage, ``gradients``, then, after
    the all-reduce, ``update``, and last ``loss``. All messages belong to the iteration that was begun last. All calls
    come from one thread.
    """

    def begin(self, iteration: int) -> None:
        """Begin a new iteration, with gradients of zero."""

    def arrived(self, message: Message, payload: memoryview) -> None:
        """Keep a message of a neighbour stage for the action that needs it.

        ``payload`` now belongs to the computation, which releases it by the callable given to its constructor.
        """

    def perform(self, action: Action) -> tuple[int, int]:
        """Carry out ``action``, whose inputs have arrived. Return its start and end in CLOCK_MONOTONIC nanoseconds."""

    def outgoing(self, message: Message) -> memoryview:
        """Return the bytes of ``message``, which an action has just computed. They do not change until ``sent``."""

    def sent(self, message: Message) -> None:
        """Release the bytes of ``message``. The kernel has accepted them."""

    def gradients(self) -> memoryview | None:
        """Return this replica's gradients of the stage as one writable buffer, for an all-reduce in place.

        Return None if there is nothing to sum. Call it once an iteration, after all actions.
        """

    def add(self, total: memoryview, part: memoryview) -> None:
        """Add ``part`` of another replica's gradients to ``total``, the same part of this one's, element by element."""

    def update(self) -> tuple[int, int] | None:
        """Run the optimizer on the summed gradients. Return its start and end, None if nothing is computed."""

    def loss(self) -> float | None:
        """Return the mean loss of this replica's microbatches: at the last stage after all forwards, else None."""


@runtime_checkable
class FlushCompute(Compute, Protocol):
    """A computation whose gradients are summed over the replicas after each flush of an iteration."""

    def keep_sum(self) -> None:
        """Keep the summed gradients of a flush, and go on with gradients of zero. ``update`` adds what was kept.

        ``gradients`` was called before, and is once more after the next flush.
        """


@runtime_checkable
class BucketCompute(Compute, Protocol):
    """A computation that hands gradients over while it still computes others, to be all-reduced meanwhile."""

    def perform_in_buckets(
        self, action: Action, buckets: int, complete: Callable[[Callable[[], memoryview]], None]
    ) -> tuple[int, int]:
        """Carry out ``action``, the last one of an iteration that computes gradients, as ``Compute.perform`` does.

        Call ``complete`` for each of ``buckets`` equal parts of the gradients, the last part of the model first, as
        soon as it is final. Its argument waits until the bytes of the part are in host memory, and returns them,
        writable, for an all-reduce in place. Another thread calls it, and ``Compute.add``. ``Compute.gradients`` is not
        called in this iteration.
        """
