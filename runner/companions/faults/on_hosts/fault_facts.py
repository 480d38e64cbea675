"""Gather what a trial's record keeps of faults: what failed, who knew when, what was lost, and what counts."""

from collections.abc import Sequence
from typing import Any

from wanbed.results.reading.trial_faults import FAILED, RECOVERED, SURVIVED, UNDISTURBED
from wanbed.runner.companions.faults.on_hosts.attempt import Attempt, covered_ns, iteration_windows_ns, kept
from wanbed.runner.companions.faults.on_hosts.injection import InjectedFault
from wanbed.runner.companions.faults.resolution import FaultPlan
from wanbed.runner.emulation.rank_configs import SharedConfig


def fault_facts(
    planned: tuple[FaultPlan, int],
    attempts: Sequence[Attempt],
    injected: Sequence[InjectedFault],
    setting: SharedConfig,
    ended_by: str | None,
    *,
    finished: bool = False,
) -> dict[str, Any]:
    """Return the entry ``faults`` of a trial's record: times in undilated ns since the trial's start.

    ``planned`` is what was to fail, and the number of iterations.
    ``ended_by`` is why there was no other attempt although training was to begin again, None otherwise. ``finished``
    says that there was none because the last attempt's checkpoints have every iteration.
    """
    (plan, iterations), last = planned, attempts[-1]
    failed = bool(last.ends) and not finished

    def on_line(time_ns: int | None) -> int | None:
        return None if time_ns is None else round((time_ns - setting.epoch_ns) / setting.dilation)

    def duration(from_ns: int | None, to_ns: int | None) -> int | None:
        return None if from_ns is None or to_ns is None else round((to_ns - from_ns) / setting.dilation)

    completed = last.done if failed else iterations
    ends = [*(attempt.first_iteration for attempt in attempts[1:]), completed]
    counted = [
        log
        for attempt, end in zip(attempts, ends, strict=True)
        for log in kept(attempt.logs, attempt.first_iteration, end)
    ]
    windows = iteration_windows_ns(counted)
    disturbances = [
        _disturbance(attempt, end, attempts[position + 1] if position + 1 < len(attempts) else None, windows, setting)
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
        "reason": _reason(last, ended_by) if failed else None,
        "recovery": plan.recovery,
        "iterations_planned": iterations,
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
            for each in injected
        ],
        "never_due": [str(fault) for fault in plan.faults[len(injected) :]],
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
