"""Run the processes that train in a trial: beside other jobs, through faults, or undisturbed."""

from collections.abc import Callable

from wanbed.results.records.span_log import SpanLogContents, read_span_log
from wanbed.runner.companions.faults.on_hosts.faulted_training import train_through_faults
from wanbed.runner.emulation.rank_configs import configure_ranks
from wanbed.runner.emulation.rank_processes import RANK, run_ranks
from wanbed.runner.emulation.running_trial import Ended, RunningTrial
from wanbed.runner.emulation.training_at_once import train_at_once
from wanbed.runner.resolve.pipeline_variant import PipelineVariant, in_pipelines
from wanbed.runner.trainings.program.on_hosts.program_trial import run_program
from wanbed.runner.trainings.program.resolution.program_variant import ProgramVariant
from wanbed.runner.trainings.torch_baseline.on_hosts import configure_baseline
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant
from wanbed.runner.trainings.trace.on_hosts import configure_trace
from wanbed.runner.trainings.trace.resolution.trace_variant import TraceVariant
from wanbed.workloads.start_gate import PIPES

BASELINE_RANK, TRACE_RANK = "wanbed.workloads.baselines.torch_rank", "wanbed.workloads.trace_replay.trace_rank"


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
    if isinstance(variant, BaselineVariant):
        begin()
        run_ranks(trial.testbed, BASELINE_RANK, configure_baseline(point, variant, setting), setting.folder, look)
        return Ended(_logs(trial), setting)
    program, plans = (
        (TRACE_RANK, configure_trace(point, variant, variant.trace, setting))
        if isinstance(variant, TraceVariant)
        else (RANK, configure_ranks(point, in_pipelines(variant), setting))
    )
    with trial.testbed.gate(setting.start_gate, [plan.host for plan in plans], PIPES, begin=begin) as gate:
        run_ranks(trial.testbed, program, plans, setting.folder, look, gate=gate)
    return Ended(_logs(trial), setting)


def _logs(trial: RunningTrial) -> list[SpanLogContents]:
    """Return what each rank of the variant has logged."""
    return [read_span_log(trial.setting.span_log(rank)) for rank in range(len(trial.variant.placement.places))]
