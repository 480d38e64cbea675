"""Run the processes that train in a trial: beside other jobs, through faults, or undisturbed."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from wanbed.results.records.span_log import read_span_log
from wanbed.runner.companions.faults.on_hosts import train_through_faults
from wanbed.runner.emulation.rank_configs import SharedConfig, configure_ranks
from wanbed.runner.emulation.rank_processes import RANK, logs_of_ranks, run_ranks, train_ranks
from wanbed.runner.emulation.running_trial import Ended, RunningTrial
from wanbed.runner.resolve.connections import count_connections
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import PipelineVariant, in_pipelines
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.trainings.registry import training_layer
from wanbed.runner.trainings.torch_baseline.on_hosts import configure_baseline
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.workloads.rank_config import RankConfig
from wanbed.workloads.start_gate import PIPES

BASELINE_RANK = "wanbed.workloads.baselines.torch_rank"


def train(trial: RunningTrial, begin: Callable[[], None], look: Callable[[], None]) -> Ended:
    """Run what trains until all of it has ended well, or as its faults have it.

    ``begin`` is called at the moment when ranks of ours begin together, or when other processes are started; ``look``
    several times a second. Raise TrialError, one line with the first process that failed and its own words.
    """
    point, variant, setting = trial.point, trial.variant, trial.setting
    if isinstance(variant, PipelineVariant) and variant.beside:
        others = train_at_once(trial.testbed, point, variant, setting, begin=begin, meanwhile=look)
        logs = [[read_span_log(path) for path in job] for job in others]
        return Ended(logs_of_ranks(trial), setting, others=logs)
    if point.faults or (trial.spec.keeps_going and trial.spec.of_ranks):
        return train_through_faults(trial, begin, look)
    if (training := training_layer(variant.spec.schedule, "on_hosts")) is not None:
        ended: Ended = training.train(trial, begin, look)
        return ended
    pipelines = in_pipelines(variant)
    if isinstance(pipelines, BaselineVariant):
        # They start by themselves, at no gate.
        begin()
        run_ranks(trial.testbed, BASELINE_RANK, configure_baseline(point, pipelines, setting), setting.folder, look)
        return Ended(logs_of_ranks(trial), setting)
    return train_ranks(trial, RANK, configure_ranks(point, pipelines, setting), begin, look)


@dataclass(frozen=True)
class NumberedPlan:
    """A rank's plan under a number that no other rank of any job has."""

    rank: int
    plan: RankConfig

    @property
    def host(self) -> str:
        """The host that the rank runs on."""
        return self.plan.host

    @property
    def gpu(self) -> int:
        """The GPU of that host that the rank computes on, counted from 0."""
        return self.plan.gpu

    def write(self, path: Path) -> None:
        """Write the plan as JSON."""
        self.plan.write(path)


def use_tcp_of_jobs(testbed: RunningTestbed, variant: ResolvedVariant) -> None:
    """Apply on the hosts of each job the TCP settings of its variant, for connections opened from now on.

    Without other jobs they are applied on every host.
    """
    if not variant.beside:
        testbed.use_tcp(variant.tcp)
        return
    for each in (variant, *variant.beside):
        testbed.use_tcp(each.tcp, {place.host.name for place in each.placement.places})


def train_at_once(
    testbed: RunningTestbed,
    point: SweepPoint,
    variant: PipelineVariant,
    setting: SharedConfig,
    *,
    begin: Callable[[], None],
    meanwhile: Callable[[], None],
) -> list[list[Path]]:
    """Run the ranks of the variant and of those beside it, which all begin together, until all have ended well.

    ``setting`` is that of the variant, whose ranks log there. Return the span logs of each of the others. Raises what
    ``run_ranks`` raises.
    """
    plans = [_numbered(plan, plan.rank, setting) for plan in configure_ranks(point, variant, setting)]
    logs: list[list[Path]] = []
    for each in variant.beside:
        first = len(plans)
        own = configure_ranks(point, each, _setting_beside(point, each, setting))
        plans += [_numbered(plan, first + plan.rank, setting) for plan in own]
        logs.append([setting.span_log(plan.rank) for plan in plans[first:]])
    with testbed.gate(setting.start_gate, [plan.host for plan in plans], PIPES, begin=begin) as gate:
        run_ranks(testbed, RANK, plans, setting.folder, meanwhile, gate=gate)
    return logs


def _numbered(plan: RankConfig, number: int, setting: SharedConfig) -> NumberedPlan:
    # A machine of a rack sends back what is named as the plan is.
    process = replace(plan.process, start_gate=str(setting.start_gate), span_log=str(setting.span_log(number)))
    return NumberedPlan(number, replace(plan, process=process))


def _setting_beside(point: SweepPoint, variant: PipelineVariant, setting: SharedConfig) -> SharedConfig:
    """Return the setting of a variant beside another: its own folder, connections, and token."""
    folder = setting.folder / f"beside-{secrets.token_hex(4)}"
    folder.mkdir()
    connections = count_connections(point.topology, variant.pairs, variant.transport)
    return replace(
        setting, folder=folder, connections=connections, run_token=secrets.token_hex(16), keep_gradients=False
    )
