"""Tabulate which parts the averages of a trial are, where replicas synchronise over a star."""

from results.reading.run import Run
from results.reading.stored_trial import StoredTrial
from results.reading.summaries.headline import point_text
from results.report.plan_outcome import PlanTable

_COLUMNS = ("sweep point", "variant", "repeat", "averages", "parts of one", "late parts", "parts too late for any")
_READING = (
    "An average is taken when as many replicas as the quorum have sent their part. A part that comes later is late: it "
    "counts in the next average of its fragment. Behind the last one there is none."
)


def averages_table(run: Run) -> PlanTable | None:
    """Return the report's table of trials whose replicas synchronise over a star; None if there is none."""
    rows = [_row(trial) for trial in run.trials if trial.facts.get("averages") is not None]
    return PlanTable(_COLUMNS, rows, _READING) if rows else None


def _row(trial: StoredTrial) -> tuple[str, ...]:
    averages = trial.facts["averages"]
    fewest, most = averages["fewest_parts"], averages["most_parts"]
    return (
        point_text(trial.values),
        trial.variant,
        str(trial.repeat),
        str(averages["sums"]),
        str(fewest) if fewest == most else f"{fewest} to {most}",
        str(averages["late_parts"]),
        str(averages["dropped_parts"]),
    )
