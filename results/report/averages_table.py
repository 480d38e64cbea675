"""Tabulate which parts the averages of a trial are, where replicas synchronise over a star."""

from typing import Any

from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.report.reported_runs import ReportedRun
from wanbed.results.report.table import Column, Table, trial_columns, trial_record

_READING = (
    "An average is taken when as many replicas as the quorum have sent their part. A part that comes later is late: it "
    "counts in the next average of its fragment. Behind the last one there is none."
)


def averages_table(own: ReportedRun) -> Table | None:
    """Return the report's table of trials whose replicas synchronise over a star; None if there is none."""
    trials = [trial for trial in own.run.trials if trial.facts.get("averages") is not None]
    return Table.of("averages", "Averages over a star", trials, _COLUMNS, _READING, record=_record)


def _record(trial: StoredTrial) -> dict[str, Any]:
    return {**trial_record(trial), **trial.facts["averages"]}


def _parts_text(trial: StoredTrial) -> str:
    fewest, most = trial.facts["averages"]["fewest_parts"], trial.facts["averages"]["most_parts"]
    return str(fewest) if fewest == most else f"{fewest} to {most}"


_COLUMNS: tuple[Column[StoredTrial], ...] = (
    *trial_columns(),
    Column("averages", lambda trial: str(trial.facts["averages"]["sums"])),
    Column("parts of one", _parts_text),
    Column("late parts", lambda trial: str(trial.facts["averages"]["late_parts"])),
    Column("parts too late for any", lambda trial: str(trial.facts["averages"]["dropped_parts"])),
)
