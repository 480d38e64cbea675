"""Tabulate what failures did to each trial of a run."""

from operator import itemgetter
from typing import Any

from wanbed.results.reading.stored_trial import StoredTrial, TrialFaults
from wanbed.results.report.reported_runs import ReportedRun
from wanbed.results.report.table import Column, Table, trial_columns, trial_record
from wanbed.results.text import count_text, percent_text, seconds_text

_READING = (
    "Time to detect lasts from the failure until every rank that it left knew of it, time to recover until training "
    "began again. Finished iterations that were lost were trained again. Training goodput is the share of the "
    "training's time in which iterations ran that count, each once."
)


def fault_table(own: ReportedRun) -> Table | None:
    """Return the report's table of trials in which anything was to fail or did; None if there is none."""
    rows = [(trial, TrialFaults.of(trial.facts)) for trial in own.run.trials if trial.faults is not None]
    return Table.of("faults", "Failures", rows, _COLUMNS, _READING, record=_record)


def fault_warnings(own: ReportedRun) -> list[str]:
    """Return a warning if trials ended before their last iteration: their figures are of fewer iterations."""
    failed = [trial for trial in own.run.trials if TrialFaults.of(trial.facts).failed]
    if not failed:
        return []
    unplanned = [trial for trial in failed if TrialFaults.of(trial.facts).failed_unplanned]
    found = [f"{count_text(len(failed), 'trial')} ended before the last iteration: figures are of those before."]
    if unplanned:
        found.append(
            f"{count_text(len(unplanned), 'trial')} failed without a planned fault, first {unplanned[0].title}: "
            f"{TrialFaults.of(unplanned[0].facts).reason}."
        )
    return found


_Row = tuple[StoredTrial, TrialFaults]


def _record(row: _Row) -> dict[str, Any]:
    trial, faults = row
    return {
        **trial_record(trial),
        "outcome": str(faults.outcome),
        "failed": _failed_text(row),
        "iterations_completed": faults.iterations_completed,
        "time_to_detect_s": faults.time_to_detect_s,
        "time_to_recover_s": faults.time_to_recover_s,
        "iterations_lost": faults.iterations_lost,
        "training_goodput_fraction": faults.training_goodput,
    }


def _outcome_text(row: _Row) -> str:
    _, faults = row
    if not faults.failed or faults.iterations_completed is None:
        return f"{faults.outcome}"
    return f"{faults.outcome} after {faults.iterations_completed}"


def _failed_text(row: _Row) -> str:
    trial, faults = row
    injected = [each["fault"] for each in (trial.faults or {}).get("injected", ()) if each["ranks"]]
    return ", ".join(injected) or (faults.reason or "")


_COLUMNS: tuple[Column[_Row], ...] = (
    *trial_columns(itemgetter(0)),
    Column("outcome", _outcome_text),
    Column("what failed", _failed_text),
    Column("time to detect", lambda row: seconds_text(row[1].time_to_detect_s)),
    Column("time to recover", lambda row: seconds_text(row[1].time_to_recover_s)),
    Column("iterations lost", lambda row: "" if row[1].iterations_lost is None else str(row[1].iterations_lost)),
    Column("training goodput", lambda row: percent_text(row[1].training_goodput)),
)
