"""Build the report's section on losses."""

from collections.abc import Sequence
from dataclasses import dataclass

from wanbed.results.report.charts.chart import Chart
from wanbed.results.report.losses.loss_series import LossSeries
from wanbed.results.report.losses.loss_table import loss_table
from wanbed.results.report.table import Table


@dataclass(frozen=True)
class LossSection:
    """The contents of the section. ``joined`` warns of clocks that are not the losses' own, "" if there are none."""

    table: Table
    chart: Chart
    joined: str


def loss_section(series: Sequence[LossSeries], charts: Sequence[Chart]) -> LossSection | None:
    """Return the section with its chart; None if nothing was learnt."""
    table = loss_table(series)
    if table is None:
        return None
    (chart,) = charts
    return LossSection(table, chart, joined_warning(series))


def joined_warning(series: Sequence[LossSeries]) -> str:
    """Return what a reader must know of clocks of other runs: no training took these times."""
    clocks = dict.fromkeys(
        f"{trial.provenance.clock_run} ({trial.provenance.clock})"
        for each in series
        for trial in each.trials
        if trial.provenance.joined
    )
    if not clocks:
        return ""
    return (
        f"The losses were measured, and their clock is that of another run of the same training: {', '.join(clocks)}. "
        "Wall times and WAN bytes in this section are that run's; all else on the page is of the run that learnt."
    )
