"""Run the processes that train in a trial: beside other jobs, through faults, or undisturbed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wanbed.results.records.span_log import SpanLogContents, read_span_log
from wanbed.runner.companions.faults.on_hosts.faulted_training import train_through_faults
from wanbed.runner.emulation.rank_configs import SharedConfig, configure_ranks
from wanbed.runner.emulation.rank_processes import RANK, RankPlan, run_ranks
from wanbed.runner.emulation.running_trial import Ended, RunningTrial
from wanbed.runner.emulation.training_at_once import train_at_once
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.trainings.local_updates.resolution import LocalUpdatesVariant
from wanbed.runner.trainings.program.on_hosts import run_program
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.runner.trainings.torch_baseline.on_hosts import configure_baseline
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant
from wanbed.runner.trainings.trace.on_hosts import configure_trace
from wanbed.runner.trainings.trace.resolution import TraceVariant
from wanbed.workloads.start_gate import PIPES

BASELINE_RANK, TRACE_RANK = "wanbed.workloads.baselines.torch_rank", "wanbed.workloads.trace_replay.trace_rank"


@dataclass(frozen=True)
class Ranks:
    """The module that each rank of a kind of training runs, and what makes the ranks' plans of its variant.

    ``gated`` ranks begin together, at a gate. Others are told to begin when they are started.
    """

    module: str
    configure: Callable[[SweepPoint, Any, SharedConfig], Sequence[RankPlan]]
    gated: bool = True


RANKS: Mapping[type[ResolvedVariant], Ranks] = {
    PipelineVariant: Ranks(RANK, configure_ranks),
    LocalUpdatesVariant: Ranks(RANK, configure_ranks),
    BaselineVariant: Ranks(BASELINE_RANK, configure_baseline, gated=False),
    TraceVariant: Ranks(TRACE_RANK, configure_trace),
}
"""The ranks of each kind of training but users' programs, which start as they are told."""


def train(trial: RunningTrial, begin: Callable[[], None], look: Callable[[], None]) -> Ended:
    """Run what trains until all of it has ended well, or as its faults have it.

    ``begin`` is called at the moment when ranks of ours begin together, or when other processes are started; ``look``
    several times a second. Raise TrialError, one line with the first process that failed and its own words.
    """
    point, variant, setting = trial.point, trial.variant, trial.setting
    if isinstance(variant, PipelineVariant) and variant.beside:
        others = train_at_once(trial.testbed, point, variant, setting, begin=begin, meanwhile=look)
        logs = [[read_span_log(path) for path in job] for job in others]
        return Ended(_logs(trial), setting, others=logs)
    if point.faults or (trial.spec.keeps_going and trial.spec.of_ranks):
        return train_through_faults(trial, begin, look)
    if isinstance(variant, ProgramVariant):
        return run_program(trial, variant.program, begin, look)
    ranks = RANKS[type(variant)]
    plans = ranks.configure(point, variant, setting)
    if not ranks.gated:
        begin()
        run_ranks(trial.testbed, ranks.module, plans, setting.folder, look)
        return Ended(_logs(trial), setting)
    with trial.testbed.gate(setting.start_gate, [plan.host for plan in plans], PIPES, begin=begin) as gate:
        run_ranks(trial.testbed, ranks.module, plans, setting.folder, look, gate=gate)
    return Ended(_logs(trial), setting)


def _logs(trial: RunningTrial) -> list[SpanLogContents]:
    """Return what each rank of the variant has logged."""
    return [read_span_log(trial.setting.span_log(rank)) for rank in range(len(trial.variant.placement.places))]
