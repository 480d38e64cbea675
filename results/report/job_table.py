"""Make the table of jobs that ran at once: each alone and beside the others, its slow-down, and Jain's index."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from wanbed.results.metrics.fairness import jain_index, slow_down
from wanbed.results.reading.headline import HeadlineRow
from wanbed.results.reading.run import Run
from wanbed.results.report.reported_runs import ReportedRun, headline_rows
from wanbed.results.report.table import Column, Table
from wanbed.results.text import list_text, ratio_text, seconds_text

_READING = (
    "Each variant ran alone first, on the hosts of its job. Slow-down is its iteration time beside the others "
    "divided by the one alone; of several repeats the median, and the range. Iterations count that ended while all "
    "jobs ran. Jain's index is of the jobs' speeds relative to alone: 1 if all are slowed down alike, 1/n if one "
    "of n runs and the others stand still."
)


@dataclass(frozen=True)
class JobRow:
    """One variant of one job beside those of the others, in one sweep point.

    ``slow_down`` is the median over the repeats that both have, of which ``slow_downs`` has one each; ``jain`` is the
    index of all jobs of the combination. None where no iteration counted.
    """

    where: str
    job: str
    variant: str
    others: tuple[str, ...]
    alone_s: float | None
    beside_s: float | None
    slow_downs: tuple[float, ...]
    jain: float | None

    @property
    def slow_down(self) -> float | None:
        """The median slow-down, None if no repeat has one."""
        return median(self.slow_downs) if self.slow_downs else None


def job_table(own: ReportedRun) -> Table | None:
    """Return the table of a run, None if no jobs ran at once."""
    rows = job_rows(own.run, own.once(headline_rows))
    return Table.of("jobs", "Jobs that share the WAN", rows, _COLUMNS, _READING, record=_record)


def _record(row: JobRow) -> dict[str, Any]:
    return {**asdict(row), "slow_down": row.slow_down}


def _slow_down_text(row: JobRow) -> str:
    if len(row.slow_downs) < 2:
        return ratio_text(row.slow_down)
    return f"{ratio_text(row.slow_down)} ({ratio_text(min(row.slow_downs))} to {ratio_text(max(row.slow_downs))})"


_COLUMNS: tuple[Column[JobRow], ...] = (
    Column("sweep point", lambda row: row.where),
    Column("job", lambda row: row.job),
    Column("variant", lambda row: row.variant),
    Column("beside", lambda row: list_text(list(row.others))),
    Column("alone", lambda row: seconds_text(row.alone_s)),
    Column("beside the others", lambda row: seconds_text(row.beside_s)),
    Column("slow-down", _slow_down_text),
    Column("Jain's index", lambda row: "unknown" if row.jain is None else f"{row.jain:.3f}"),
)


def job_rows(run: Run, headline: Sequence[HeadlineRow]) -> list[JobRow]:
    """Return a row for each variant beside others, in the run's order. ``headline`` is the run's."""
    times: dict[tuple[int, str], dict[int, float]] = defaultdict(dict)
    for row in run.summary.to_dict("records"):
        if row["iteration_time_s"] == row["iteration_time_s"]:
            times[row["sweep_point"], row["variant"]][row["repeat"]] = row["iteration_time_s"]
    figures = {(row.point, row.variant): row for row in headline}
    about = {(trial.point, trial.variant): trial for trial in run.trials if trial.facts.get("beside")}
    factors: dict[tuple[int, str], tuple[float, ...]] = {}
    combinations: dict[tuple[int, frozenset[str]], list[tuple[int, str]]] = defaultdict(list)
    for (point, variant), trial in about.items():
        facts = trial.facts["beside"]
        alone_s, beside_s = times[point, facts["variant"]], times[point, variant]
        both = (slow_down(alone_s.get(repeat), time_s) for repeat, time_s in sorted(beside_s.items()))
        factors[point, variant] = tuple(each for each in both if each is not None)
        combinations[point, frozenset([facts["variant"], *facts["others"]])].append((point, variant))
    rows = []
    for (point, variant), trial in about.items():
        facts = trial.facts["beside"]
        members = combinations[point, frozenset([facts["variant"], *facts["others"]])]
        known = [median(factors[member]) for member in members if factors[member]]
        complete = len(known) == len(facts["others"]) + 1
        alone, beside = figures.get((point, facts["variant"])), figures.get((point, variant))
        rows.append(
            JobRow(
                trial.where,
                facts["job"],
                facts["variant"],
                tuple(facts["others"]),
                None if alone is None else alone.times.median_s,
                None if beside is None else beside.times.median_s,
                factors[point, variant],
                jain_index(known) if complete else None,
            )
        )
    return rows
