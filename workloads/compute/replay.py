"""Replayed compute: each action takes its known time and needs no GPU."""

import time
from collections.abc import Callable
from dataclasses import dataclass, fields

from results.records.span_log import NO_MICROBATCH
from workloads.compute.compute import Compute, TrainingGpu
from workloads.message import Message, MessageKind
from workloads.schedules.action import Action, ActionKind
from workloads.transport.frames.buffer_pool import BufferPool

LONGEST_SLEEP_NS = 500_000_000


@dataclass(frozen=True)
class ReplayDurations:
    """The time of each action of one stage, on the testbed's clock (dilated, where the run is).

    Where a schedule splits the backward, its parts take ``backward_input_ns`` and ``backward_weight_ns``, each half of
    the backward where it is not given. ``optimizer_ns`` is the step that ends an iteration. Raises ValueError naming
    the field if one is negative.
    """

    forward_ns: int
    backward_ns: int
    recompute_ns: int = 0
    backward_input_ns: int | None = None
    backward_weight_ns: int | None = None
    optimizer_ns: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value < 0:
                raise ValueError(f"{field.name}: {value} is negative")

    def of(self, kind: ActionKind) -> int:
        """Return how long an action of that kind takes, in nanoseconds."""
        half_ns = self.backward_ns // 2
        match kind:
            case ActionKind.FORWARD:
                return self.forward_ns
            case ActionKind.RECOMPUTE:
                return self.recompute_ns
            case ActionKind.BACKWARD:
                return self.backward_ns
            case ActionKind.BACKWARD_INPUT:
                return self.backward_ns - half_ns if self.backward_input_ns is None else self.backward_input_ns
            case ActionKind.BACKWARD_WEIGHT:
                return half_ns if self.backward_weight_ns is None else self.backward_weight_ns


@dataclass(frozen=True)
class ReplaySizes:
    """The bytes that one stage sends.

    ``following_bytes`` is an activation, to the stage after; ``previous_bytes`` the gradient of one, to the stage
    before; ``gradient_bytes`` the gradients of all of the stage's weights, 0 where nothing is to be summed. Raises
    ValueError naming the field if one is negative.
    """

    following_bytes: int = 0
    previous_bytes: int = 0
    gradient_bytes: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise ValueError(f"{field.name}: {getattr(self, field.name)} is negative")


@dataclass(frozen=True)
class ReplayCosts:
    """One stage, replayed: how long its actions take, and how much they send."""

    durations: ReplayDurations
    sizes: ReplaySizes = ReplaySizes()


class ReplayCompute(Compute):
    """Occupies one GPU, in name, for the durations of ``work``, and sends buffers of its sizes.

    It sends memory that nobody has written, one buffer of ``pool`` for each size. Whoever receives a payload
    may give it back at once: no action reads it. ``check`` is called at least every half second of an action; what it
    raises ends the action. With ``gpu`` each action waits until that is training's.
    """

    def __init__(
        self,
        work: ReplayCosts,
        check: Callable[[], None],
        pool: BufferPool | None = None,
        gpu: TrainingGpu | None = None,
    ) -> None:
        self._durations = work.durations
        self._sizes = work.sizes
        self._check = check
        self._pool = pool or BufferPool()
        self._gpu = gpu
        self._iteration = 0
        self._payloads: dict[int, memoryview] = {}
        self._gradients: memoryview | None = None

    def begin(self, iteration: int) -> None:
        """Keep the iteration, which is reported to ``gpu``. Actions leave nothing else to reset."""
        self._iteration = iteration

    def arrived(self, message: Message, payload: memoryview) -> None:
        """Do nothing: no action reads the payload."""

    def perform(self, action: Action) -> tuple[int, int]:
        """Block until ``action`` has taken its time. Returns its start and end in CLOCK_MONOTONIC nanoseconds."""
        return self._take(self._durations.of(action.kind), action.kind.value, action.microbatch)

    def outgoing(self, message: Message) -> memoryview:
        """Return as many bytes as the message has, the same ones for every message of that size."""
        to_following = message.kind is MessageKind.ACTIVATION
        size_bytes = self._sizes.following_bytes if to_following else self._sizes.previous_bytes
        if size_bytes not in self._payloads:
            self._payloads[size_bytes] = self._pool.take(size_bytes)
        return self._payloads[size_bytes]

    def sent(self, message: Message) -> None:
        """Do nothing: the buffer stays for the next message."""

    def gradients(self) -> memoryview | None:
        """Return a buffer of ``gradient_bytes``, none of it touched here; None if those are 0."""
        if self._gradients is None and self._sizes.gradient_bytes:
            self._gradients = self._pool.take(self._sizes.gradient_bytes)
        return self._gradients

    def add(self, total: memoryview, part: memoryview) -> None:
        """Do nothing: the given durations are the whole computation."""

    def update(self) -> tuple[int, int] | None:
        """Block for the optimizer's time. Returns its start and end, None if it takes no time."""
        return (
            self._take(self._durations.optimizer_ns, "optimizer", NO_MICROBATCH)
            if self._durations.optimizer_ns
            else None
        )

    def loss(self) -> float | None:
        """Return None: nothing is learnt."""
        return None

    def occupy(self, kind: str, start_ns: int, duration_ns: int) -> int:
        """Block until an action of that ``kind``, begun at ``start_ns``, has taken its time. Returns its end.

        It never ends early. The deadline is set once, so waking late from a part of a long sleep adds nothing. A
        subclass that computes in place of waiting replaces this.
        """
        deadline_ns = start_ns + duration_ns
        while (now_ns := time.monotonic_ns()) < deadline_ns:
            self._check()
            time.sleep(min(deadline_ns - now_ns, LONGEST_SLEEP_NS) / 1e9)
        return now_ns

    def _take(self, duration_ns: int, kind: str, microbatch: int) -> tuple[int, int]:
        gpu = self._gpu
        if gpu is not None:
            gpu.claim()
        start_ns = time.monotonic_ns()
        if gpu is not None:
            gpu.began(start_ns, self._iteration, kind, microbatch)
        end_ns = self.occupy(kind, start_ns, duration_ns)
        if gpu is not None:
            gpu.ended(end_ns)
        return start_ns, end_ns
