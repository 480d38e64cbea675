"""Keep what each simulated rank is doing, and the spans of what it has done as rows of whole numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.simulator.action_table import StageRun
from wanbed.runner.simulator.channels.transfers import Transfers
from wanbed.runner.simulator.simulated_spans import WorkNumbers
from wanbed.runner.simulator.surroundings import AllReduce
from wanbed.workloads.compute.varied_durations import DurationDraws
from wanbed.workloads.message import Message
from wanbed.workloads.schedules.action import ActionKind


@dataclass(slots=True)
class RankState:
    """One stage of one pipeline. ``number`` counts the simulated ranks, ``mate`` the pipelines of the DP-cell.

    ``costs_ns`` has the durations of each chunk's kinds of actions, and ``numbers`` what its spans have added to the
    microbatch. ``ways`` are the transfers of what it sends, by ``way_of``. ``held`` is true while sends block and the
    last one has not left. ``asked`` is, where receives block, the iteration and the message that it has asked for last.
    ``buckets_bytes`` is empty unless all-reduces overlap with the last backward. Then ``unended`` counts what the
    update awaits: the last bucket's all-reduce, and the rank's last action. ``lost`` is whether it has been killed:
    nothing of it happens any more. In an iteration it has a ``run``, or where its schedule has no table, a
    ``schedule``. ``is_pending`` is whether it is to be asked at this instant.
    """

    number: int
    rank: int
    pipeline: int
    stage: int
    mate: int
    iteration: int = 0
    busy: bool = False
    held: bool = False
    schedule: Any = None
    run: StageRun | None = None
    is_pending: bool = False
    ways: list[Transfers | None] = field(default_factory=list)
    costs_ns: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    optimizer_ns: int = 0
    draws: DurationDraws | None = None
    unsent: int = 0
    sent_ns: int = 0
    updates: bool = False
    asked: tuple[int, Message] | None = None
    done: bool = False
    buckets_bytes: tuple[int, ...] = ()
    unended: int = 0
    lost: bool = False

    def drawn_ns(self, kind: str, microbatch: int, usual_ns: int) -> int:
        """Return how long an action takes in this iteration."""
        return usual_ns if self.draws is None else self.draws.duration_ns(self.iteration, kind, microbatch, usual_ns)

    def begun_again(self, iteration: int) -> "RankState":
        """Return the rank as it begins that iteration after it was killed."""
        return RankState(
            self.number,
            self.rank,
            self.pipeline,
            self.stage,
            self.mate,
            iteration,
            ways=self.ways,
            costs_ns=self.costs_ns,
            numbers=self.numbers,
            optimizer_ns=self.optimizer_ns,
            draws=self.draws,
        )


def culprit_of(ranks: Sequence[RankState]) -> RankState | None:
    """Return a rank that has a ready action but does not start it, None if there is none."""
    for rank in ranks:
        schedule = rank.schedule
        if rank.done or schedule is None or schedule.complete(rank.stage):
            continue
        if any(schedule.ready(rank.stage, action) for action in schedule.open_actions(rank.stage)):
            return rank
    return None


def simulated_ranks(variant: PipelineVariant, pipelines: Sequence[int], rings: AllReduce) -> list[RankState]:
    """Return the ranks of these pipelines, one pipeline after the other, as they are before training begins."""
    stages, numbers = variant.placement.stages, WorkNumbers.of(variant)
    ranks = []
    for position, pipeline in enumerate(pipelines):
        for stage in range(stages):
            mate = pipeline % variant.pipelines_per_cell
            rank = RankState(position * stages + stage, pipeline * stages + stage, pipeline, stage, mate)
            costs = variant.costs(pipeline, stage)
            for chunk, part in enumerate(variant.chunk_costs(stage) or (costs,)):
                rank.costs_ns += [part.durations.of(kind) for kind in ActionKind]
                virtual = variant.layout.number(stage, chunk)
                rank.numbers.append(0 if numbers is None else numbers.base(virtual))
            rank.optimizer_ns = costs.durations.optimizer_ns
            rank.draws = None if costs.variation is None else DurationDraws(costs.variation)
            if variant.overlaps_all_reduce and rings.has_gradients(stage):
                rank.buckets_bytes = variant.buckets_bytes(stage)
            ranks.append(rank)
    return ranks


NUMBERS: Final = 8
"""The numbers of a row."""
