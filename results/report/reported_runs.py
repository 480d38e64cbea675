"""Read the runs of a report into the rows that its tables and charts are made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from wanbed.results.reading.headline import HeadlineRow, headline
from wanbed.results.reading.run import Run, load_run, run_labels
from wanbed.results.report.losses.loss_series import LossSeries, loss_series
from wanbed.results.report.prefill.prefill_impact import Impact, impacts
from wanbed.results.report.prefill.prefill_service import PrefillRow, prefill_rows

Row = TypeVar("Row")


@dataclass(frozen=True)
class ReportedRuns:
    """Runs by label, and of all of them the headline, the prefill, its impact on training, and what was learnt."""

    by_label: Mapping[str, Run]
    headline: Sequence[HeadlineRow]
    prefill: Sequence[PrefillRow]
    impacts: Sequence[Impact]
    losses: Sequence[LossSeries]

    @classmethod
    def of(cls, runs: Mapping[str, Run], clocks: Sequence[Run | None] | None = None) -> "ReportedRuns":
        """Read runs, which are given by label.

        ``clocks`` has for each the run of the same training whose clock times its losses, None for its own. Raise
        ClockError as ``loss_trials`` does.
        """

        def of_all(rows_of: Callable[[Run, str], list[Row]]) -> list[Row]:
            return [row for label, run in runs.items() for row in rows_of(run, label)]

        return cls(runs, of_all(headline), of_all(prefill_rows), of_all(impacts), loss_series(runs, clocks))


def labelled(runs: Sequence[Path | Run]) -> dict[str, Run]:
    """Return runs by label; each is a folder, or a run that was read already.

    Raise RunError, with one line as message, if a folder is no run or damaged.
    """
    loaded = [run if isinstance(run, Run) else load_run(run, coded=True) for run in runs]
    return dict(zip(run_labels(loaded), loaded, strict=True))
