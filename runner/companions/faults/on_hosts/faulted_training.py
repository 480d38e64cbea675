"""Train through the faults of a trial: until the end, or as often as its recovery begins again."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wanbed.results.records.span_log import SpanLogContents, SpanLogHeader, read_span_log
from wanbed.runner.companions.faults.on_hosts.attempt import Attempt, each_iteration_once, kept
from wanbed.runner.companions.faults.on_hosts.checkpoints_of_machines import bring_together, without_left_checkpoints
from wanbed.runner.companions.faults.on_hosts.fault_history import FaultHistory
from wanbed.runner.companions.faults.on_hosts.injection import FaultInjector, injecting
from wanbed.runner.emulation.rank_configs import SharedConfig, configure_ranks, rejoining
from wanbed.runner.emulation.rank_processes import RANK, RankEnd, RankFaults, RanksFailedError, run_ranks
from wanbed.runner.emulation.running_trial import Ended, RunningTrial
from wanbed.runner.resolve.connections import count_connections
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import in_pipelines
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.workloads.checkpoints import CheckpointConfig, checkpoint_files, last_restart
from wanbed.workloads.rank_config import RankConfig
from wanbed.workloads.start_gate import PIPES


@dataclass(frozen=True)
class _Restart:
    """The begin of an attempt: after so many iterations, with the files of this checkpoint, () for none."""

    iteration: int = 0
    files: tuple[Path, ...] = ()


def train_through_faults(trial: RunningTrial, begin: Callable[[], None], look: Callable[[], None]) -> Ended:
    """Train, let everything fail when it is due, and begin again where the sweep point says so.

    A trial that planned faults have ended is no error. If ranks fail that no fault explains, raise RanksFailedError;
    in a run that keeps going the trial ends there, and that is no error either. ``begin`` is called when training
    begins for the first time, ``look`` several times a second. There is a log for each rank of each attempt, of the
    iterations that count, each once.
    """
    testbed, point, setting, unplanned = trial.testbed, trial.point, trial.setting, trial.spec.keeps_going
    repeat, variant = trial.spec.id.repeat, point.variant(trial.spec.id.variant)
    plan, iterations = point.faults, point.iterations(variant)
    attempts: list[Attempt] = []
    counted: list[SpanLogContents] = []
    ended_by: str | None = None
    finished = False
    restart, running = _Restart(), variant.in_repeat(repeat)
    with (
        without_left_checkpoints(testbed, setting.folder),
        injecting(testbed, plan.faults, setting.dilation) as faults,
    ):
        while True:
            own = _attempt_setting(point, running, setting, len(attempts))
            first = begin if not attempts else lambda: None
            of_attempt = _Trial(point, running, own, restart)
            attempt = _attempt(testbed, of_attempt, faults, look, begin=first, unplanned=unplanned)
            attempts.append(attempt)
            # What falls due while nothing runs is lost too.
            faults.look()
            left = variant if plan.recovery == "none" else plan.variant_left(variant, faults.lost_hosts)
            if isinstance(left, str):
                ended_by = left
            end = attempt.done if attempt.ends else iterations
            restarts = bool(attempt.hits and attempt.ends) and plan.recovery != "none"
            if restarts:
                restart = _next_restart(testbed, point, attempt, own, restart)
                # The last checkpoint may be that of the last iteration: nothing is left to train.
                finished = restart.iteration >= iterations
            goes_on = restarts and not finished and ended_by is None
            if finished or goes_on:
                end = restart.iteration
            counted += kept(attempt.logs, attempt.first_iteration, end)
            if not goes_on or isinstance(left, str):
                break
            running = left.in_repeat(repeat)
        injected = tuple(faults.injected)
    if not plan and not attempts[-1].ends:
        return Ended(counted, own, whole=False)
    history = FaultHistory(plan, iterations, attempts, injected, setting, ended_by, finished)
    return Ended(counted, own, whole=False, facts=lambda line: {"faults": history.facts(line)})


@dataclass(frozen=True)
class _Trial:
    point: SweepPoint
    variant: ResolvedVariant
    setting: SharedConfig
    restart: _Restart


def _attempt_setting(point: SweepPoint, variant: ResolvedVariant, setting: SharedConfig, number: int) -> SharedConfig:
    """Return the setting of an attempt: its own folder, and a token that keeps an earlier attempt's bytes out."""
    folder = setting.folder / f"attempt-{number}"
    folder.mkdir()
    connections = count_connections(point.topology, variant.pairs, variant.transport)
    return replace(setting, folder=folder, connections=connections, run_token=secrets.token_hex(16))


def _attempt(
    testbed: RunningTestbed,
    trial: _Trial,
    faults: FaultInjector,
    meanwhile: Callable[[], None],
    *,
    begin: Callable[[], None],
    unplanned: bool,
) -> Attempt:
    """Train until the end, or until ranks have failed by what has been injected. Raise RanksFailedError for others."""
    plans = _configured(trial)
    setting, before = trial.setting, len(faults.injected)
    ends: Sequence[RankEnd] = ()
    cause = ""
    returned: list[RankConfig] = []

    def successor(rank: int) -> RankConfig:
        span_log = setting.folder / f"rank-{rank}.back-{len(returned) + 1}.spans"
        returned.append(rejoining(plans[rank], plans, span_log))
        return returned[-1]

    def has_joined(rank: int) -> bool:
        return _log(next(plan for plan in reversed(returned) if plan.rank == rank)).joined is not None

    try:
        with testbed.gate(setting.start_gate, [plan.host for plan in plans], PIPES, begin=begin) as gate:
            hitting = RankFaults(faults, trial.variant.goes_on_without, successor, has_joined)
            run_ranks(testbed, RANK, plans, setting.folder, meanwhile, gate=gate, faults=hitting)
    except RanksFailedError as failure:
        if not unplanned and not any(each.ranks for each in faults.injected[before:]):
            raise
        ends, cause = failure.ends, str(failure)
    return Attempt(
        trial.variant,
        trial.restart.iteration,
        faults.attempt_began_ns,
        each_iteration_once([_log(plan) for plan in (*plans, *returned)]),
        tuple(ends),
        tuple(faults.injected[before:]),
        cause,
    )


def _configured(trial: _Trial) -> list[RankConfig]:
    plans = configure_ranks(trial.point, in_pipelines(trial.variant), trial.setting)
    plan, backend = trial.point.faults, trial.point.spec.compute.backend
    checkpoints = None
    if plan.recovery == "restart" and backend.saves_state:
        checkpoints = CheckpointConfig(
            str(trial.setting.folder), plan.checkpoint_every, tuple(map(str, trial.restart.files))
        )
    return [
        replace(
            each,
            links=replace(each.links, first_iteration=trial.restart.iteration),
            kept=replace(each.kept, checkpoints=checkpoints),
        )
        for each in plans
    ]


def _next_restart(
    testbed: RunningTestbed, point: SweepPoint, attempt: Attempt, setting: SharedConfig, before: _Restart
) -> _Restart:
    """Return where training begins again: at the last checkpoint that all have reached, of this attempt or before."""
    stages, saves = attempt.variant.placement.stages, point.spec.compute.backend.saves_state

    def files(number: int) -> tuple[Path, ...]:
        return checkpoint_files(setting.folder, number, stages)

    if saves:
        bring_together(testbed, setting.folder, stages, attempt.done, point.faults.checkpoint_every)
    number = last_restart(attempt.done, point.faults.checkpoint_every, lambda each: not saves or bool(files(each)))
    return _Restart(number, files(number) if saves else ()) if number > before.iteration else before


def _log(plan: RankConfig) -> SpanLogContents:
    """Return what a rank logged; nothing if it was killed before it began its log."""
    path = Path(plan.span_log)
    if path.exists():
        return read_span_log(path)
    owner = SpanLogHeader(plan.rank, plan.host, plan.datacenter, plan.gpu, plan.pipeline, plan.stage)
    return SpanLogContents(owner, (), complete=False)
