"""Compute how much of a WAN's bad time a training loses.

    lost share = (seconds of the trial on the bad day - seconds on the calm day) / seconds of bad weather

0 where the training does not notice, 1 where it stands still as long as the WAN is bad, and above 1 where it also needs
time to get going again. Beside a neighbour that is there throughout, the bad time is the trial's own, and the share
follows from the slow-down: 1 - 1 / slow-down. Both compare the same number of iterations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from studies.bad_days.day import OURS, Day, Weather
from wanbed.results.metrics import NS_PER_S
from wanbed.results.metrics.bootstrap import median_interval
from wanbed.results.metrics.iterations import iteration_windows
from wanbed.results.reading.headline import headline
from wanbed.results.reading.run import Run
from wanbed.results.report.job_table import job_rows

BREAKS_AT = 0.25
"""A plan counts as broken from the first step on that costs it this share of the bad time."""


@dataclass(frozen=True)
class Loss:
    """The cost of one step of a day's ladder for one variant: a lost share for every moment or repeat.

    ``calm_s`` and ``bad_s`` are the mean seconds of an iteration on the calm day and on the bad one.
    """

    severity: int
    variant: str
    shares: tuple[float, ...]
    calm_s: float
    bad_s: float

    @property
    def share(self) -> float:
        """The median of the shares."""
        return median(self.shares)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of that median, by the bootstrap; None for fewer than three shares."""
        return median_interval([[each] for each in self.shares])


def losses(run: Run, day: Day) -> list[Loss]:
    """Return the losses of a day's run, by step and variant. A variant with a trial that failed is left out."""
    return _beside_neighbour(run, day) if run.manifest["experiment"].get("jobs") else _under_weather(run, day)


def breaking_step(of_variant: Sequence[Loss]) -> int | None:
    """Return the first step of the ladder that breaks a variant, given its losses; None if none does."""
    broken = [loss.severity for loss in of_variant if loss.share >= BREAKS_AT]
    return min(broken) if broken else None


def _under_weather(run: Run, day: Day) -> list[Loss]:
    weather = _weather_of_points(run, day)
    calm_s: dict[str, float] = {}
    bad_s: dict[tuple[int, str], list[tuple[float, float]]] = {}
    iterations = int(run.manifest["experiment"]["training"]["iterations"])
    for (point, variant), total_s in _training_s(run, iterations).items():
        at = weather[point]
        if at is None:
            calm_s[variant] = total_s
        elif at.length_s is not None:
            bad_s.setdefault((at.severity, variant), []).append((total_s, at.length_s))
    return [
        Loss(
            severity,
            variant,
            tuple((total_s - calm_s[variant]) / length_s for total_s, length_s in trials),
            calm_s[variant] / iterations,
            median(total_s for total_s, _ in trials) / iterations,
        )
        for (severity, variant), trials in sorted(bad_s.items())
        if variant in calm_s
    ]


def _training_s(run: Run, iterations: int) -> dict[tuple[int, str], float]:
    """Return the seconds from the start of the first iteration to the end of the last, of every complete trial."""
    found: dict[tuple[int, str], float] = {}
    by_trial: Any = run.spans.groupby(["sweep_point", "variant"], observed=True)
    for (point, variant), spans in by_trial:
        windows = iteration_windows(spans)
        if len(windows) == iterations:
            found[int(point), str(variant)] = (windows["end_ns"].max() - windows["start_ns"].min()) / NS_PER_S
    return found


def _weather_of_points(run: Run, day: Day) -> Mapping[int, Weather | None]:
    columns = run.summary[["sweep_point", day.path]].drop_duplicates()
    return {int(point): day.weather(str(value)) for point, value in columns.itertuples(index=False)}


def _beside_neighbour(run: Run, day: Day) -> list[Loss]:
    weather = _weather_of_points(run, day).values()
    severities = [each.severity for each in weather if each is not None]
    ours = [row for row in job_rows(run, headline(run)) if row.job == OURS]
    points = list(dict.fromkeys(row.where for row in ours))
    return [
        Loss(
            severities[points.index(row.where)],
            row.variant,
            tuple(1 - 1 / slow_down for slow_down in row.slow_downs),
            row.alone_s,
            row.beside_s,
        )
        for row in ours
        if row.slow_downs and row.alone_s is not None and row.beside_s is not None
    ]
