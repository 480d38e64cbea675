"""Tabulate what failures did to each trial of a run."""

from results.reading.run import Run
from results.reading.stored_trial import StoredTrial
from results.reading.summaries.headline import point_text
from results.reading.summaries.trial_faults import TrialFaults
from results.report.plan_outcome import PlanTable
from results.text.number_text import count_text, percent_text, seconds_text

_COLUMNS = (
    "sweep point",
    "variant",
    "repeat",
    "outcome",
    "what failed",
    "time to detect",
    "time to recover",
    "iterations lost",
    "training goodput",
)
_READING = (
    "Time to detect lasts from the failure until every rank that it left knew of it, time to recover until training "
    "began again. Finished iterations that were lost were trained again. Training goodput is the share of the "
    "training's time in which iterations ran that count, each once."
)


def fault_table(run: Run) -> PlanTable | None:
    """Return the report's table of trials in which anything was to fail or did; None if there is none."""
    rows = [_row(trial) for trial in run.trials if trial.faults is not None]
    return PlanTable(_COLUMNS, rows, _READING) if rows else None


def fault_warnings(run: Run) -> list[str]:
    """Return a warning if trials ended before their last iteration: their figures are of fewer iterations."""
    failed = [trial for trial in run.trials if TrialFaults.of(trial.facts).failed]
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


def _row(trial: StoredTrial) -> tuple[str, ...]:
    faults = TrialFaults.of(trial.facts)
    injected = [each["fault"] for each in (trial.faults or {}).get("injected", ()) if each["ranks"]]
    done = "" if faults.iterations_completed is None else f" after {faults.iterations_completed}"
    return (
        point_text(trial.values),
        trial.variant,
        str(trial.repeat),
        f"{faults.outcome}{done if faults.failed else ''}",
        ", ".join(injected) or (faults.reason or ""),
        seconds_text(faults.time_to_detect_s),
        seconds_text(faults.time_to_recover_s),
        "" if faults.iterations_lost is None else str(faults.iterations_lost),
        percent_text(faults.training_goodput),
    )
