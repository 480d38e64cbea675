"""Read what one trial of a user's program shows of its time: the source of the report's section on programs."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from wanbed.results import metrics
from wanbed.results.metrics import COMPUTE, CollectiveTime, RankTime, Window
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import StoredTrial, swept_values
from wanbed.results.reading.summaries.headline import point_text
from wanbed.results.reading.trial_frames import rows_of_trial
from wanbed.results.report.charts.drawing.representative import typical_trial


@dataclass(frozen=True)
class ProgramTrial:
    """The typical trial of one variant at one sweep point.

    ``profiled`` is the number of iterations that a profiler recorded. ``profiled_s`` is the mean length of these and
    ``iteration_s`` the median of the measured ones, None without any. ``wan_bytes`` are the fewest and the most bytes
    that crossed between datacenters in a measured iteration, None if unknown.
    """

    where: str
    variant: str
    profiled: int
    profiled_s: float | None
    iteration_s: float | None
    ranks: Sequence[RankTime]
    collectives: Sequence[CollectiveTime]
    wan_bytes: tuple[float, float] | None

    @property
    def recorded(self) -> Sequence[RankTime]:
        """The ranks that were profiled."""
        return [each for each in self.ranks if each.parts_ns is not None]

    def name_of(self, rank: int) -> str:
        """Return a rank and its host."""
        return next(f"rank {each.rank} on {each.host}" for each in self.ranks if each.rank == rank)

    def share(self, part: str) -> float:
        """Return a part's share of the profiled ranks' time, a fraction; there must be such ranks."""
        whole_ns = sum(each.end_ns - each.start_ns for each in self.recorded)
        return sum((each.parts_ns or {}).get(part, 0) for each in self.recorded) / whole_ns

    @property
    def computes(self) -> bool:
        """Whether any rank has forward or backward: otherwise the profiler saw nothing but collectives."""
        return any((each.parts_ns or {}).get(COMPUTE) for each in self.ranks)


def program_trials(run: Run) -> list[ProgramTrial]:
    """Return the typical trial of each sweep point and variant that ran a program, in the order of the run's trials."""
    found = dict.fromkeys((trial.point, trial.variant) for trial in run.trials if trial.program is not None)
    return [_of_trial(run, _typical(run, point, variant)) for point, variant in found]


def _typical(run: Run, point: int, variant: str) -> StoredTrial:
    first = next(trial for trial in run.trials if (trial.point, trial.variant) == (point, variant))
    return typical_trial(run, point, variant) or first


def _of_trial(run: Run, trial: StoredTrial) -> ProgramTrial:
    spans = rows_of_trial(run.spans, trial)
    windows = metrics.successive_windows(metrics.iteration_windows(spans))
    profiled = metrics.profiled_iterations(spans, trial.profiled_iterations)
    of_profiled = windows.loc[profiled]
    lengths_ns = of_profiled["end_ns"] - of_profiled["start_ns"]
    first = trial.first_measured_iteration
    times_s = metrics.iteration_times_s(windows, first, trial.profiled_iterations)
    return ProgramTrial(
        where=point_text(swept_values(run.manifest, trial.point)),
        variant=trial.variant,
        profiled=len(profiled),
        profiled_s=float(lengths_ns.mean()) / metrics.NS_PER_S if len(profiled) else None,
        iteration_s=metrics.mean_time_s(times_s),
        ranks=metrics.rank_times(spans, profiled),
        collectives=metrics.collective_times(spans, profiled),
        wan_bytes=_wan_bytes(run, trial, windows.iloc[first : len(windows) - len(profiled)]),
    )


def _wan_bytes(run: Run, trial: StoredTrial, measured: pd.DataFrame) -> tuple[float, float] | None:
    if measured.empty:
        return None
    window = Window(int(measured["start_ns"].min()), int(measured["end_ns"].max()))
    found = metrics.wan_bytes_within(rows_of_trial(run.link_samples, trial), window)
    return None if found is None else (found[0] / len(measured), found[1] / len(measured))
