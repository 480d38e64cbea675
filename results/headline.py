"""The report's main table: what each variant of each run achieved in each cell, over its repeats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from results.comparison.bootstrap import median_interval
from results.run import Run
from results.summary import swept_values

LATENCY_PATH = "topology.wan.latency"
RATE_PATH = "prefill.rate"
_PATH_NAMES = {LATENCY_PATH: "WAN latency", RATE_PATH: "request rate"}
_FIGURES = (
    "iteration_time_s",
    "gpu_utilization",
    "gpu_utilization_with_prefill",
    "wan_bytes",
    "wan_goodput_bps",
    "tokens_per_s",
)


@dataclass(frozen=True)
class HeadlineRow:
    """One variant of one run in one cell. Figures are medians over repeats, times with their range; None is unknown.

    ``interval_s`` holds the median iteration time with 95 % confidence (``results.comparison.bootstrap``), drawn from
    ``iterations`` measured ones in all repeats; None where too few were measured, or the run was simulated.
    ``not_modelled`` is what was asked for and the simulation does not have.
    """

    run: str
    cell: int
    values: Mapping[str, str]
    variant: str
    repeats: int
    iterations: int
    iteration_time_s: float | None
    interval_s: tuple[float, float] | None
    fastest_s: float | None
    slowest_s: float | None
    speed_up: float | None
    gpu_utilization: float | None
    gpu_utilization_with_prefill: float | None
    wan_bytes: float | None
    wan_goodput_bps: float | None
    tokens_per_s: float | None
    calibrated: bool
    simulated: bool
    not_modelled: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The cell's swept values as a reader says them."""
        return cell_text(self.values)

    @property
    def prefilled(self) -> bool:
        """Whether any GPU that trains prefilled in its bubbles."""
        return self.gpu_utilization_with_prefill != self.gpu_utilization


def cell_text(values: Mapping[str, Any]) -> str:
    """A cell's swept values as a reader says them; empty where nothing was swept."""
    return ", ".join(f"{_PATH_NAMES.get(path, path)} {value}" for path, value in values.items())


def _median(values: npt.NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None


def headline(run: Run, label: str = "") -> list[HeadlineRow]:
    """A row for each cell and variant that has a finished trial, in the order of the run's trials.

    ``speed_up`` is the first variant's iteration time in that cell over this one's. ``label`` is what tells the run
    from others.
    """
    figures = {name: run.summary[name].to_numpy(np.float64, na_value=np.nan) for name in _FIGURES}
    all_times_s: list[list[float]] = list(run.summary["iteration_times_s"])
    calibrated = run.summary["calibrated"].to_numpy(bool)
    trials_of: dict[tuple[int, str], list[int]] = {}
    for position, trial in enumerate(run.trials):
        trials_of.setdefault((trial.cell, trial.variant), []).append(position)
    baseline = run.variants[0] if run.variants else ""
    times_s: dict[tuple[int, str], float | None] = {}
    rows = []
    for (cell, variant), positions in trials_of.items():
        of_trials = {name: values[positions] for name, values in figures.items()}
        measured_s = of_trials["iteration_time_s"]
        measured_s = measured_s[~np.isnan(measured_s)]
        time_s = times_s[cell, variant] = _median(measured_s)
        baseline_s = times_s.get((cell, baseline))
        of_repeats_s = [all_times_s[position] for position in positions]
        rows.append(
            HeadlineRow(
                run=label,
                cell=cell,
                values=swept_values(run.manifest, cell),
                variant=variant,
                repeats=len(positions),
                iterations=sum(map(len, of_repeats_s)),
                iteration_time_s=time_s,
                interval_s=None if run.simulated else median_interval(of_repeats_s),
                fastest_s=float(measured_s.min()) if len(measured_s) else None,
                slowest_s=float(measured_s.max()) if len(measured_s) else None,
                speed_up=baseline_s / time_s if baseline_s and time_s else None,
                gpu_utilization=_median(of_trials["gpu_utilization"]),
                gpu_utilization_with_prefill=_median(of_trials["gpu_utilization_with_prefill"]),
                wan_bytes=_median(of_trials["wan_bytes"]),
                wan_goodput_bps=_median(of_trials["wan_goodput_bps"]),
                tokens_per_s=_median(of_trials["tokens_per_s"]),
                calibrated=bool(calibrated[positions].all()),
                simulated=run.simulated,
                not_modelled=tuple(run.summary["not_modelled"].iloc[positions[0]]),
            )
        )
    return rows


def by_cell(rows: Sequence[HeadlineRow]) -> list[tuple[str, list[HeadlineRow]]]:
    """The rows of all runs by swept values, in order of appearance; within them by variant, then run."""
    variants, runs = (list(dict.fromkeys(names)) for names in ([r.variant for r in rows], [r.run for r in rows]))
    groups: dict[str, list[HeadlineRow]] = {}
    for row in rows:
        groups.setdefault(row.where, []).append(row)
    return [
        (where, sorted(own, key=lambda row: (variants.index(row.variant), runs.index(row.run))))
        for where, own in groups.items()
    ]


def interval_note(rows: Sequence[HeadlineRow]) -> str:
    """What the intervals are made of, and what they cannot hold; empty if there are none."""
    with_interval = [row for row in rows if row.interval_s is not None]
    if not with_interval:
        return ""
    repeats = _range_text([row.repeats for row in with_interval], "repeat")
    iterations = _range_text([round(row.iterations / row.repeats) for row in with_interval], "measured iteration")
    note = (
        f"The range under an iteration time is its 95 % bootstrap interval, from {repeats} of {iterations}: repeats "
        "are resampled, then iterations within them."
    )
    if min(row.repeats for row in with_interval) == 1:
        note += " With one repeat it holds no noise from run to run."
    return note


def _range_text(counts: Sequence[int], singular: str) -> str:
    low, high = min(counts), max(counts)
    number = str(low) if low == high else f"{low} to {high}"
    return f"{number} {singular}{'' if high == 1 else 's'}"
