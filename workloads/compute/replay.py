"""Replayed compute: each action takes its known time and needs no GPU."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from wanbed.results.records.span_log import NO_MICROBATCH
from wanbed.workloads.compute.compute import BucketCompute, TrainingGpu
from wanbed.workloads.compute.varied_durations import DurationDraws, Variation
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.transport.receive_buffers import BufferPool
from wanbed.workloads.transport.ring_round import complete_ns, cut_buckets

_LONGEST_SLEEP_NS = 500_000_000


@dataclass(frozen=True)
class ReplayDurations:
    """The duration of each action of one stage, on the testbed's clock (dilated if the run is).

    ``backward_input_ns`` and ``backward_weight_ns`` are the parts of a split backward, each half of the backward if
    None. ``optimizer_ns`` is the optimizer step at the end of an iteration. Raises ValueError naming the field if one
    is negative.
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

    def changed(self, change: Callable[[int], int]) -> "ReplayDurations":
        """Return the durations after ``change`` of each one that is not None."""
        times = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(time) for name, time in times.items() if time is not None})

    def of(self, kind: ActionKind) -> int:
        """Return the duration of an action of that kind in nanoseconds."""
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
    """The sizes in bytes of what one stage sends.

    ``following_bytes``: an activation, to the next stage. ``previous_bytes``: the gradient of an activation, to the
    previous stage. ``gradient_bytes``: the gradients of all weights of the stage, 0 if there is no all-reduce. Raises
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
    """The stage costs for a replay: the durations of its actions, and the sizes of what it sends.

    ``variation`` is how the durations vary, None if they do not.
    """

    durations: ReplayDurations
    sizes: ReplaySizes = ReplaySizes()
    variation: Variation | None = None


class ReplayCompute(BucketCompute):
    """Occupies an imaginary GPU for the durations of ``work``, and sends buffers of its sizes.

    It sends unwritten memory, one buffer of ``pool`` for each size. No action reads a received payload, so it may be
    given back at once. ``check`` is called at least every half second of an action; an error that it raises ends the
    action. With ``gpu`` each action first claims that GPU for training. ``chunks`` are the costs of each virtual stage
    of a stage that is divided.
    """

    def __init__(
        self,
        work: ReplayCosts,
        check: Callable[[], None],
        pool: BufferPool | None = None,
        gpu: TrainingGpu | None = None,
        chunks: Sequence[ReplayCosts] = (),
    ) -> None:
        self._chunks = tuple(chunks) or (work,)
        self._durations = work.durations
        self._sizes = work.sizes
        self._draws = None if work.variation is None else DurationDraws(work.variation)
        self._check = check
        self._pool = pool or BufferPool()
        self._gpu = gpu
        self._iteration = 0
        self._payloads: dict[int, memoryview] = {}
        self._gradients: memoryview | None = None

    def begin(self, iteration: int) -> None:
        """Store the iteration, which durations may depend on. There is no other state to reset."""
        self._iteration = iteration

    def arrived(self, message: Message, payload: memoryview) -> None:
        """Do nothing: no action reads the payload."""

    def perform(self, action: Action) -> tuple[int, int]:
        """Block for the duration of ``action``. Return its start and end in CLOCK_MONOTONIC nanoseconds."""
        return self._take(self._usual_ns(action), action.kind.value, action.microbatch)

    def perform_in_buckets(
        self, action: Action, buckets: int, complete: Callable[[Callable[[], memoryview]], None]
    ) -> tuple[int, int]:
        """Do as ``perform``. Complete the buckets evenly over the duration, those of other virtual stages at once."""
        gradients = self.gradients()
        assert gradients is not None
        payloads = [gradients[start:end] for start, end in cut_buckets(gradients.nbytes, 1, buckets)]

        def passed(part: int) -> None:
            complete(lambda: payloads[part])

        return self._take(self._usual_ns(action), action.kind.value, action.microbatch, buckets, passed)

    def outgoing(self, message: Message) -> memoryview:
        """Return a buffer of the message's size, the same one for every message of that size."""
        to_following = message.kind is MessageKind.ACTIVATION
        sizes = self._chunks[message.chunk].sizes
        size_bytes = sizes.following_bytes if to_following else sizes.previous_bytes
        if size_bytes not in self._payloads:
            self._payloads[size_bytes] = self._pool.take(size_bytes)
        return self._payloads[size_bytes]

    def sent(self, message: Message) -> None:
        """Do nothing: the buffer is kept for the next message."""

    def gradients(self) -> memoryview | None:
        """Return an unwritten buffer of ``gradient_bytes``; None if those are 0."""
        if self._gradients is None and self._sizes.gradient_bytes:
            self._gradients = self._pool.take(self._sizes.gradient_bytes)
        return self._gradients

    def add(self, total: memoryview, part: memoryview) -> None:
        """Do nothing: the durations of the actions are the whole computation."""

    def keep_sum(self) -> None:
        """Do nothing, as ``add`` does."""

    def update(self) -> tuple[int, int] | None:
        """Block for the optimizer's duration. Return its start and end, None if the duration is 0."""
        return (
            self._take(self._durations.optimizer_ns, "optimizer", NO_MICROBATCH)
            if self._durations.optimizer_ns
            else None
        )

    def loss(self) -> float | None:
        """Return None: a replay trains nothing."""
        return None

    def occupy(self, kind: str, start_ns: int, duration_ns: int) -> int:
        """Block until an action of that ``kind``, begun at ``start_ns``, has taken its duration. Return its end.

        It never returns early. A long sleep is made of parts with one deadline, so that waking late from one part does
        not add up. A subclass that computes instead of waiting overrides this.
        """
        deadline_ns = start_ns + duration_ns
        while (now_ns := time.monotonic_ns()) < deadline_ns:
            self._check()
            time.sleep(min(deadline_ns - now_ns, _LONGEST_SLEEP_NS) / 1e9)
        return now_ns

    def _usual_ns(self, action: Action) -> int:
        return self._chunks[action.chunk].durations.of(action.kind)

    def _take(
        self,
        duration_ns: int,
        kind: str,
        microbatch: int,
        parts: int = 1,
        passed: Callable[[int], None] = lambda _: None,
    ) -> tuple[int, int]:
        """Occupy the GPU for an action. Call ``passed`` with each of its ``parts``, from 0, when it is complete."""
        gpu = self._gpu
        if self._draws is not None:
            duration_ns = self._draws.duration_ns(self._iteration, kind, microbatch, duration_ns)
        if gpu is not None:
            gpu.claim()
        start_ns = time.monotonic_ns()
        if gpu is not None:
            gpu.began(start_ns, self._iteration, kind, microbatch)
        end_ns = begun_ns = start_ns
        for part in range(parts):
            until_ns = complete_ns(start_ns, start_ns + duration_ns, part, parts, len(self._chunks))
            end_ns = self.occupy(kind, begun_ns, until_ns - begun_ns)
            passed(part)
            begun_ns = until_ns
        if gpu is not None:
            gpu.ended(end_ns)
        return start_ns, end_ns
