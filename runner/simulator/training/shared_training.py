"""Simulate training on GPUs that it shares with another user, to which it leaves them while they are idle."""

from collections.abc import Sequence
from typing import Any

from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.simulator.event_queue import EventQueue, Handler
from wanbed.runner.simulator.gpu_sharing import GpuSharing
from wanbed.runner.simulator.training.rank_state import RankState
from wanbed.runner.simulator.training.surroundings import Surroundings
from wanbed.runner.simulator.training.training import NO_MICROBATCH, OPTIMIZER_KIND, Training
from wanbed.workloads.schedules.action import Action


class SharedTraining(Training):
    """Trains as ``Training`` does. ``sharing`` is the other user, whose GPUs have the numbers of ranks.

    At one instant its events are handled after those of training.
    """

    def __init__(
        self,
        variant: PipelineVariant,
        pipelines: Sequence[int],
        iterations: int,
        events: EventQueue,
        surroundings: Surroundings,
        *,
        sharing: GpuSharing,
    ) -> None:
        super().__init__(variant, pipelines, iterations, events, surroundings)
        self._sharing = sharing

    def next_instant(self) -> bool:
        """Handle the next instant of training or the other user. Return False if training has no event."""
        next_ns, shared_ns = self._events.next_ns, self._sharing.next_ns
        if next_ns is not None and shared_ns is not None and shared_ns < next_ns:
            self._sharing.handle_next_instant()
            return True
        return super().next_instant()

    def _leave_idle(self, rank: RankState) -> None:
        if not rank.busy:
            self._sharing.idle(self._events.now_ns, rank.rank)

    def _begin_action(self, now_ns: int, rank: RankState, action: Action) -> None:
        self._when_free(now_ns, rank, self._start, (rank, action))

    def _when_free(self, now_ns: int, rank: RankState, start: Handler, what: Any) -> None:
        """Call ``start`` as soon as the other user has released the GPU."""
        release_ns = self._sharing.wants(now_ns, rank.rank)
        if release_ns > now_ns:
            self._events.at(release_ns, start, what)
        else:
            start(now_ns, what)

    def _start(self, now_ns: int, what: tuple[RankState, Action]) -> None:
        rank, action = what
        self._sharing.started(now_ns, rank.rank, rank.iteration, action.kind.value, action.microbatch)
        self._compute(now_ns, rank, action)

    def _finish(self, now_ns: int, what: tuple[RankState, Action, int]) -> None:
        rank, action, _ = what
        if not rank.lost:
            self._sharing.ended(now_ns, rank.rank, rank.iteration, action.kind.value, action.microbatch)
        super()._finish(now_ns, what)

    def _begin_optimizer(self, start_ns: int, rank: RankState, duration_ns: int) -> None:
        self._events.at(start_ns, self._want_optimizer, (rank, duration_ns))

    def _want_optimizer(self, now_ns: int, what: tuple[RankState, int]) -> None:
        rank, _ = what
        rank.busy = True
        self._when_free(now_ns, rank, self._start_optimizer, what)

    def _start_optimizer(self, now_ns: int, what: tuple[RankState, int]) -> None:
        rank, duration_ns = what
        self._sharing.started(now_ns, rank.rank, rank.iteration, OPTIMIZER_KIND, NO_MICROBATCH)
        self._events.at(self._optimizer_end_ns(now_ns, rank, duration_ns), self._end_optimizer, rank)

    def _end_optimizer(self, now_ns: int, rank: RankState) -> None:
        rank.busy = False
        self._sharing.ended(now_ns, rank.rank, rank.iteration, OPTIMIZER_KIND, NO_MICROBATCH)
        self._next_iteration(now_ns, rank)
        self._pending.add(rank.number)
