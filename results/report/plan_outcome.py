"""Compare the planned makespan with the measured one, and explain differences.

Both times last from the start of an iteration's first computation to the end of its last one, without all-reduces and
optimizer, which no plan orders.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from wanbed.results.metrics.numbering import is_among
from wanbed.results.reading.headline import point_text
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import StoredTrial, swept_values
from wanbed.results.reading.trial_rows import chosen_rows, rows_of_trial
from wanbed.results.report.plan_causes import PLANNED_KINDS, plan_causes
from wanbed.results.report.table import Column, Table
from wanbed.results.text import count_text, percent_text, seconds_text

TOLERANCE = 0.05
"""The share of the planned time by which an outcome may differ without an explanation."""


@dataclass(frozen=True)
class PlanOutcome:
    """One trial of a planned schedule. ``by_rates_s`` is the planned time without TCP's ramp, None if unknown.

    ``outcome_s`` is the median of the measured iterations. ``causes`` is empty if it is within ``TOLERANCE``.
    """

    where: str
    variant: str
    repeat: int
    planned_s: float
    by_rates_s: float | None
    outcome_s: float
    causes: tuple[str, ...]

    @property
    def difference(self) -> float:
        """The difference as a share of the planned time: above 0 if the outcome took longer."""
        return self.outcome_s / self.planned_s - 1


def plan_outcomes(run: Run) -> list[PlanOutcome]:
    """Return the outcome of each trial with a plan and a measured iteration, in the order of the run's trials."""
    found = (_of_trial(run, trial) for trial in run.trials if trial.facts.get("planned_makespan_s"))
    return [outcome for outcome in found if outcome is not None]


def plan_table(outcomes: Sequence[PlanOutcome]) -> Table | None:
    """Return the report's table; None if nothing was planned."""
    return Table.of("plans", "Plan against outcome", outcomes, _COLUMNS, _READING, record=_record)


def _record(outcome: PlanOutcome) -> dict[str, Any]:
    return {**asdict(outcome), "difference": outcome.difference}


_COLUMNS: tuple[Column[PlanOutcome], ...] = (
    Column("sweep point", lambda outcome: outcome.where),
    Column("variant", lambda outcome: outcome.variant),
    Column("plan by rates alone", lambda outcome: seconds_text(outcome.by_rates_s)),
    Column("plan", lambda outcome: seconds_text(outcome.planned_s)),
    Column("outcome", lambda outcome: seconds_text(outcome.outcome_s)),
    Column("difference", lambda outcome: f"{100 * outcome.difference:+.1f} %"),
    Column("cause", lambda outcome: "; ".join(outcome.causes)),
)
_READING = (
    "Times are makespans, from an iteration's first computation to the end of its last one; the outcome is the median "
    "of the measured iterations. The plan is longer than by rates alone because of TCP, whose windows open slowly at "
    f"the start and after pauses. A difference above {percent_text(TOLERANCE)} is explained from the spans."
)


def plan_warnings(outcomes: Sequence[PlanOutcome]) -> list[str]:
    """Return a warning if any outcome is not as planned; empty if all are."""
    differing = [outcome for outcome in outcomes if outcome.causes]
    if not differing:
        return []
    worst = max(differing, key=lambda outcome: abs(outcome.difference))
    at = f" at {worst.where}" if worst.where else ""
    return [
        f"{count_text(len(differing), 'trial')} of {len(outcomes)} with a plan deviated from it by more than "
        f"{percent_text(TOLERANCE)}, worst {worst.variant}{at}: "
        f"{seconds_text(worst.outcome_s)} where {seconds_text(worst.planned_s)} were planned: "
        f"{'; '.join(worst.causes)}."
    ]


def _of_trial(run: Run, trial: StoredTrial) -> PlanOutcome | None:
    planned_s = float(trial.facts["planned_makespan_s"])
    spans = rows_of_trial(run.spans, trial)
    spans = chosen_rows(spans, (spans["iteration"] >= trial.warmup_iterations).to_numpy(bool))
    columns = spans[["iteration", "start_ns", "end_ns"]]
    planned_work = columns[is_among(spans["kind"], PLANNED_KINDS)]
    if planned_work.empty:
        return None
    by_iteration = planned_work.groupby("iteration")
    outcome_s = float((by_iteration["end_ns"].max() - by_iteration["start_ns"].min()).median()) / 1e9
    plan = trial.facts.get("plan") or {}
    differs = abs(outcome_s / planned_s - 1) > TOLERANCE
    return PlanOutcome(
        point_text(swept_values(run.manifest, trial.point)),
        trial.variant,
        trial.repeat,
        planned_s,
        plan.get("by_rates_s"),
        outcome_s,
        plan_causes(trial.facts, spans) if differs else (),
    )
