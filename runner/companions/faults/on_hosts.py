"""Train through the faults of a trial: until the end, or as often as its recovery begins again.

Each attempt at the training ends by itself, or by a fault. A record is kept of all of them: what failed, who knew when,
what was lost, and which iterations count.

Where training begins again, each machine has written the stages of its own hosts to the checkpoint. The hosts of one
machine share its disk, which outlives them. On a rack the driver makes up for the disk that machines do not share:
before training begins again, all of them have the files of the checkpoint that it begins with.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from wanbed.results.reading.stored_trial import FAILED, RECOVERED, SURVIVED, UNDISTURBED
from wanbed.results.records.span_log import COMPUTE_KINDS, PREFILL, SpanLogContents, read_span_log
from wanbed.runner.companions.faults.resolution import FaultPlan
from wanbed.runner.emulation.rank_configs import SharedConfig, configure_ranks, rejoining
from wanbed.runner.emulation.rank_processes import (
    RANK,
    FaultInjector,
    InjectedFault,
    RankEnd,
    RankFaults,
    RanksFailedError,
    injecting,
    run_ranks,
)
from wanbed.runner.emulation.running_trial import Ended, RunningTrial
from wanbed.runner.emulation.time_line import moved_log
from wanbed.runner.resolve.connections import count_connections
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import in_pipelines
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.testbed.rack.driver.machine_clock import TimeLine
from wanbed.testbed.rack.machine_handle import MachineLostError
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.workloads.kept_files import CheckpointConfig, checkpoint_file, checkpoint_files, last_restart
from wanbed.workloads.rank_config import RankConfig
from wanbed.workloads.start_gate import PIPES


@dataclass(frozen=True)
class Attempt:
    """The training from ``first_iteration`` on, until the end or until a fault.

    Times are CLOCK_MONOTONIC, dilated if the run is. ``began_ns`` is None if a fault came before all ranks were ready.
    ``logs`` are what the ranks logged, ``ends`` how they ended if one failed, else (). ``faults`` are those that
    happened meanwhile, ``cause`` is the first failure in its own words.
    """

    variant: ResolvedVariant
    first_iteration: int
    began_ns: int | None
    logs: tuple[SpanLogContents, ...]
    ends: tuple[RankEnd, ...] = ()
    faults: tuple[InjectedFault, ...] = ()
    cause: str = ""

    @property
    def done(self) -> int:
        """The number of iterations of the whole training that every rank has finished."""
        return min((_done(log, self.first_iteration) for log in self.logs), default=self.first_iteration)

    @property
    def hits(self) -> tuple[InjectedFault, ...]:
        """The faults that concerned any rank."""
        return tuple(each for each in self.faults if each.ranks)

    @property
    def failed_ns(self) -> int | None:
        """The time of the first fault that concerned a rank, or else the time when the first rank had ended."""
        if self.hits:
            return self.hits[0].applied_ns
        return min((end.ended_ns for end in self.ends if end.status and end.ended_ns is not None), default=None)

    @property
    def survivors(self) -> tuple[RankEnd, ...]:
        """The ends of those ranks that no fault has killed."""
        killed = {rank for each in self.faults if each.fault.kind != "gateway" for rank in each.ranks}
        return tuple(end for end in self.ends if end.rank not in killed)

    @property
    def all_knew_ns(self) -> int | None:
        """The time when the last surviving rank had ended because of its lost peers; None if one never noticed."""
        times_ns = [end.ended_ns for end in self.survivors]
        known = [time_ns for time_ns in times_ns if time_ns is not None]
        return None if len(known) < len(times_ns) else max(known, default=self.failed_ns)

    @property
    def said(self) -> tuple[tuple[int, str], ...]:
        """The last line that each surviving rank printed, with its rank. The first rank to end comes first."""
        spoken = [end for end in self.survivors if end.ended_ns is not None and end.line]
        return tuple((end.rank, end.line) for end in sorted(spoken, key=lambda end: end.ended_ns or 0))


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
        _without_left_checkpoints(testbed, setting.folder),
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
        _bring_together(testbed, setting.folder, stages, attempt.done, point.faults.checkpoint_every)
    number = last_restart(attempt.done, point.faults.checkpoint_every, lambda each: not saves or bool(files(each)))
    return _Restart(number, files(number) if saves else ()) if number > before.iteration else before


def _log(plan: RankConfig) -> SpanLogContents:
    """Return what a rank logged; nothing if it was killed before it began its log."""
    path = Path(plan.process.span_log)
    if path.exists():
        return read_span_log(path)
    return SpanLogContents(plan.place, (), complete=False)


def kept(logs: Iterable[SpanLogContents], first: int, end: int) -> tuple[SpanLogContents, ...]:
    """Return the logs as if they had only the iterations from ``first`` to before ``end``, and had ended well."""
    return tuple(
        replace(
            log,
            spans=tuple(span for span in log.spans if first <= span.iteration < end),
            losses=tuple(each for each in log.losses if first <= each[0] < end),
            complete=True,
        )
        for log in logs
    )


def each_iteration_once(logs: Sequence[SpanLogContents]) -> tuple[SpanLogContents, ...]:
    """Return the logs, of which later ones are of ranks that came back, without iterations that these did again."""
    found = []
    for number, log in enumerate(logs):
        again = [
            later.joined.iteration
            for later in logs[number + 1 :]
            if later.joined is not None and later.header.rank == log.header.rank
        ]
        found.append(log if not again else replace(*kept([log], 0, min(again)), complete=log.complete))
    return tuple(found)


def iteration_windows_ns(logs: Sequence[SpanLogContents]) -> dict[int, tuple[int, int]]:
    """Return when each iteration took place: from the first start to the last end of its work and messages."""
    found: dict[int, tuple[int, int]] = {}
    for log in logs:
        for span in log.spans:
            if span.kind != PREFILL:
                start_ns, end_ns = found.get(span.iteration, (span.start_ns, span.end_ns))
                found[span.iteration] = min(start_ns, span.start_ns), max(end_ns, span.end_ns)
    return found


def covered_ns(windows: Iterable[tuple[int, int]]) -> int:
    """Return the time that windows cover together; where they overlap, it counts once."""
    total_ns = 0
    reached_ns: int | None = None
    for start_ns, end_ns in sorted(windows):
        begin_ns = start_ns if reached_ns is None else max(start_ns, reached_ns)
        total_ns += max(0, end_ns - begin_ns)
        reached_ns = end_ns if reached_ns is None else max(reached_ns, end_ns)
    return total_ns


def _done(log: SpanLogContents, first: int) -> int:
    # A rank logs what it computed when it has finished the iteration, all at once.
    return max((span.iteration + 1 for span in log.spans if span.kind in COMPUTE_KINDS), default=first)


_CHECKPOINTS = "after-*/stage-*"


def _bring_together(testbed: RunningTestbed, folder: Path, stages: int, done: int, every: int) -> None:
    """Copy the last complete checkpoint below ``folder`` here and to every machine, if any is on another machine.

    ``done``, ``every`` and ``stages`` are as for ``last_restart`` and ``checkpoint_files``.
    """
    shared = testbed.shared(folder)
    there = shared.names(_CHECKPOINTS)

    def names(number: int) -> list[str]:
        return [str(checkpoint_file(folder, number, stage).relative_to(folder)) for stage in range(stages)]

    if number := last_restart(done, every, lambda each: there.issuperset(names(each))):
        shared.spread(names(number))


@contextmanager
def _without_left_checkpoints(testbed: RunningTestbed, folder: Path) -> Iterator[None]:
    """Remove the checkpoints of a trial's attempts elsewhere when the block ends: the next trial has its own."""
    try:
        yield
    finally:
        # A machine that has gone has none.
        with suppress(MachineLostError):
            testbed.shared(folder).remove(f"attempt-*/{_CHECKPOINTS}")


def fault_lines(faults: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield a line for each time that faults ended the ranks, and one for each that came too late or met nobody."""
    if faults is None:
        return
    for each in faults["disturbances"]:
        what = " and ".join(each["faults"]) or "a rank"
        if faults["outcome"] == SURVIVED:
            known = each["time_to_detect_ns"]
            noticed = "did not notice" if known is None else f"knew after {_seconds(known)}"
            when = _seconds(each["at_ns"])
            back = each["time_to_recover_ns"]
            again = "" if back is None else f"; it joined them again after {_seconds(back)}"
            went_on = f"the rank that gathers {noticed}, and the others went on{again}"
            yield f"{what} failed at {when} of the trial, {went_on}"
            continue
        line = f"{what} failed at {_seconds(each['at_ns'])} of the trial, every rank knew {_after(each)}"
        if each["time_to_recover_ns"] is not None:
            line += (
                f", training began again after {_seconds(each['time_to_recover_ns'])}; finished iterations that were "
                f"lost: {each['iterations_lost']}"
            )
        yield line
    if faults["outcome"] == FAILED:
        done = faults.get("iterations_completed")
        known = "" if done is None else f" after {done} of {faults['iterations_planned']} iterations"
        yield f"the trial ended{known}: {faults['reason']}"
    for each in faults.get("injected", ()):
        if not each["ranks"]:
            yield f"{each['fault']} failed, where no rank was"
        elif faults["outcome"] == UNDISTURBED:
            yield f"{each['fault']} failed when its ranks had done all iterations"
    for name in faults.get("never_due", ()):
        yield f"{name} was to fail after the trial's end: it did not"


def _after(disturbance: Mapping[str, Any]) -> str:
    if disturbance["time_to_detect_ns"] is not None:
        return f"after {_seconds(disturbance['time_to_detect_ns'])}"
    return f"but {len(disturbance['unaware'])}, which were ended"


def _seconds(time_ns: int | None) -> str:
    return "an unknown time" if time_ns is None else f"{time_ns / 1e9:.3f} s"


@dataclass(frozen=True)
class FaultHistory:
    """The attempts of a trial's training and what failed meanwhile, as noted where it happened.

    ``iterations`` is how many were planned, ``setting`` that of the trial. ``ended_by`` is why there was no other
    attempt although training was to begin again, None otherwise. ``finished`` says that there was none because the last
    attempt's checkpoints have every iteration.
    """

    plan: FaultPlan
    iterations: int
    attempts: Sequence[Attempt]
    injected: Sequence[InjectedFault]
    setting: SharedConfig
    ended_by: str | None = None
    finished: bool = False

    def facts(self, line: TimeLine | None) -> dict[str, Any]:
        """Return the entry ``faults`` of the trial's record: times in undilated ns since the trial's start.

        With ``line`` hosts are on several machines: all moments are put on the driver's clock, and each failure has
        how far that moment can be off, ``clock_error_ns``.
        """
        if line is None:
            return self._facts()
        attempts = [_moved_attempt(each, line) for each in self.attempts]
        injected = [_moved_fault(each, line) for each in self.injected]
        facts = replace(self, attempts=attempts, injected=injected)._facts()
        for entry, each in zip(facts["injected"], self.injected, strict=True):
            error_ns = 0 if each.timed_by is None else line.error_ns(each.timed_by)
            entry["clock_error_ns"] = ceil(error_ns / self.setting.dilation)
        return facts

    def _facts(self) -> dict[str, Any]:
        attempts, setting, last = self.attempts, self.setting, self.attempts[-1]
        failed = bool(last.ends) and not self.finished

        def on_line(time_ns: int | None) -> int | None:
            return None if time_ns is None else round((time_ns - setting.epoch_ns) / setting.dilation)

        def duration(from_ns: int | None, to_ns: int | None) -> int | None:
            return None if from_ns is None or to_ns is None else round((to_ns - from_ns) / setting.dilation)

        completed = last.done if failed else self.iterations
        ends = [*(attempt.first_iteration for attempt in attempts[1:]), completed]
        counted = [
            log
            for attempt, end in zip(attempts, ends, strict=True)
            for log in kept(attempt.logs, attempt.first_iteration, end)
        ]
        windows = iteration_windows_ns(counted)
        disturbances = [
            _disturbance(
                attempt, end, attempts[position + 1] if position + 1 < len(attempts) else None, windows, setting
            )
            for position, (attempt, end) in enumerate(zip(attempts, ends, strict=True))
            if attempt.ends
        ]
        losses = [] if last.ends else _losses(last, setting)
        began_ns = next((attempt.began_ns for attempt in attempts if attempt.began_ns is not None), None)
        last_window_ns = max((end for _, end in windows.values()), default=None)
        ended_ns = last.all_knew_ns if failed else None
        if not failed and last_window_ns is not None:
            ended_ns = last_window_ns + setting.epoch_ns
        wall_ns = duration(began_ns, ended_ns)
        useful_ns = round(covered_ns(windows.values()) / setting.dilation)
        return {
            "outcome": FAILED if failed else RECOVERED if disturbances else SURVIVED if losses else UNDISTURBED,
            "planned": not failed or bool(last.hits),
            "reason": _reason(last, self.ended_by) if failed else None,
            "recovery": self.plan.recovery,
            "iterations_planned": self.iterations,
            "iterations_completed": completed,
            "iterations_lost": sum(each["iterations_lost"] for each in disturbances),
            "began_ns": on_line(began_ns),
            "useful_ns": useful_ns,
            "wall_ns": wall_ns,
            "training_goodput": min(1.0, useful_ns / wall_ns) if wall_ns else None,
            "injected": [
                {
                    "fault": str(each.fault),
                    "due_ns": on_line(each.due_ns),
                    "applied_ns": on_line(each.applied_ns),
                    "ranks": list(each.ranks),
                }
                for each in self.injected
            ],
            "never_due": [str(fault) for fault in self.plan.faults[len(self.injected) :]],
            "disturbances": [*disturbances, *losses],
            "placements": [
                [[place.host.name, place.gpu] for place in attempt.variant.placement.places] for attempt in attempts
            ],
        }


def _disturbance(
    attempt: Attempt,
    end: int,
    following: Attempt | None,
    windows: dict[int, tuple[int, int]],
    setting: SharedConfig,
) -> dict[str, Any]:
    """Return what one attempt lost: its iterations from ``end`` on did not count."""
    hit_ns = attempt.failed_ns
    own = [windows[number][1] for number in range(attempt.first_iteration, end) if number in windows]
    kept_until_ns = max(own) + setting.epoch_ns if own else attempt.began_ns

    def since(from_ns: int | None, to_ns: int | None) -> int | None:
        return None if from_ns is None or to_ns is None else round((to_ns - from_ns) / setting.dilation)

    return {
        "faults": [str(each.fault) for each in attempt.hits],
        "at_ns": since(setting.epoch_ns, hit_ns),
        "iterations_lost": attempt.done - end,
        "lost_work_ns": max(0, since(kept_until_ns, hit_ns) or 0),
        "time_to_detect_ns": since(hit_ns, attempt.all_knew_ns),
        "time_to_recover_ns": since(hit_ns, following.began_ns) if following is not None else None,
        "unaware": [end.rank for end in attempt.survivors if end.ended_ns is None],
        "said": [{"rank": rank, "line": line} for rank, line in attempt.said],
    }


def _losses(attempt: Attempt, setting: SharedConfig) -> list[dict[str, Any]]:
    """Return what became of each fault that the others went on after: when the rank that gathers had lost the replica.

    Nothing is lost but the replica. The time is None where it did not notice before the end. It has recovered when it
    joins again with the others' weights. A fault that came when its ranks had ended well is none of them.
    """
    ended_well = {log.header.rank for log in attempt.logs if log.complete}
    lost = [(each.rank, each.time_ns) for log in attempt.logs for each in log.lost]
    joined = [(log.header.rank, log.joined.time_ns) for log in attempt.logs if log.joined is not None]
    found = []
    for each in attempt.hits:
        known_ns, back_ns = (_longest_ns(each, times, setting) for times in (lost, joined))
        if known_ns is None and back_ns is None and ended_well.issuperset(each.ranks):
            continue
        found.append(
            {
                "faults": [str(each.fault)],
                "at_ns": round((each.applied_ns - setting.epoch_ns) / setting.dilation),
                "iterations_lost": 0,
                "lost_work_ns": 0,
                "time_to_detect_ns": known_ns,
                "time_to_recover_ns": back_ns,
                "unaware": [],
                "said": [],
            }
        )
    return found


def _longest_ns(fault: InjectedFault, times: Sequence[tuple[int, int]], setting: SharedConfig) -> int | None:
    """Return how long after a fault its last rank had its next time, of (rank, time); None if none has one."""
    after = [
        min(
            (
                at_ns + setting.epoch_ns
                for own, at_ns in times
                if own == rank and at_ns + setting.epoch_ns >= fault.applied_ns
            ),
            default=None,
        )
        for rank in fault.ranks
    ]
    known = [at_ns for at_ns in after if at_ns is not None]
    return round((max(known) - fault.applied_ns) / setting.dilation) if known else None


def _reason(last: Attempt, ended_by: str | None) -> str:
    if not last.hits:
        return last.cause
    names = " and ".join(str(each.fault) for each in last.hits)
    return f"{names} failed" if ended_by is None else f"{names} failed, and training cannot go on: {ended_by}"


def _moved_attempt(attempt: Attempt, line: TimeLine) -> Attempt:
    places = attempt.variant.placement.places
    return replace(
        attempt,
        logs=tuple(moved_log(log, line) for log in attempt.logs),
        ends=tuple(
            each
            if each.ended_ns is None
            else replace(each, ended_ns=_driver_ns(each.ended_ns, places[each.rank].host.name, line))
            for each in attempt.ends
        ),
        faults=tuple(_moved_fault(each, line) for each in attempt.faults),
    )


def _moved_fault(each: InjectedFault, line: TimeLine) -> InjectedFault:
    if each.timed_by is None:
        return each
    return replace(each, applied_ns=_driver_ns(each.applied_ns, each.timed_by, line))


def _driver_ns(noted_ns: int, host: str, line: TimeLine) -> int:
    """Return when that was on the driver's clock; a host's machine noted it, less what its clock was ahead."""
    return line.epoch_ns + line.trial_ns(host, noted_ns - line.epoch_ns)
