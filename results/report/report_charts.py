"""Draw every chart of a report: the charts shared by all runs, those about prefill, and those of single runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wanbed.results.reading.headline import HeadlineRow
from wanbed.results.reading.run import Run
from wanbed.results.report.charts.changing_links import changing_links_chart
from wanbed.results.report.charts.chart import Chart
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.charts.connections import connections_chart
from wanbed.results.report.charts.gpu_time import GpuTimeShares, drawn_points, gpu_time_chart, gpu_time_shares
from wanbed.results.report.charts.heat_map import heat_map_chart
from wanbed.results.report.charts.iteration_time import iteration_time_chart
from wanbed.results.report.charts.link_throughput import link_throughput_chart
from wanbed.results.report.charts.timeline import MAX_SPANS, timeline_chart
from wanbed.results.report.charts.ttft import ttft_chart
from wanbed.results.report.losses import loss_chart
from wanbed.results.report.reported_runs import ReportedRuns


@dataclass(frozen=True)
class ReportCharts:
    """The charts of a report.

    ``shared`` show all runs, ``losses`` what they learnt, ``prefill`` their prefill, and ``own`` has each run's own
    charts by its label. ``shares`` are the GPU time shares in the drawn sweep points.
    """

    shared: tuple[Chart, ...]
    losses: tuple[Chart, ...]
    prefill: tuple[Chart, ...]
    own: Mapping[str, tuple[Chart, ...]]
    shares: Sequence[GpuTimeShares]

    @property
    def all(self) -> tuple[Chart, ...]:
        """The charts in the order of the page."""
        return (*self.shared, *self.losses, *self.prefill, *(chart for charts in self.own.values() for chart in charts))


def report_charts(reported: ReportedRuns, styles: Styles) -> ReportCharts:
    """Draw the charts that have data."""
    runs, rows = reported.by_label, reported.headline
    several = len(runs) > 1
    timelines = {
        label: timeline_chart(drawn, styles, f"run-{position}", label if several else "", MAX_SPANS // len(runs))
        for position, (label, drawn) in enumerate(reported.drawn.items())
    }
    shares, points = _shares(runs, rows)
    shared = [
        iteration_time_chart(rows, styles, "all"),
        heat_map_chart(rows, "all"),
        gpu_time_chart(shares, points, "all"),
        *([] if several else timelines.values()),
        link_throughput_chart(reported.drawn, styles, "all"),
        connections_chart(reported.drawn, styles, "all"),
        changing_links_chart(reported.drawn, styles, "all"),
    ]
    own = {label: _drawn(timeline if several else None) for label, timeline in timelines.items()}
    losses, ttft = loss_chart(reported.losses, styles, "all"), ttft_chart(reported.prefill, styles, "all")
    return ReportCharts(_drawn(*shared), _drawn(losses), _drawn(ttft), own, shares)


def _drawn(*charts: Chart | None) -> tuple[Chart, ...]:
    return tuple(filter(None, charts))


def _shares(runs: Mapping[str, Run], rows: Sequence[HeadlineRow]) -> tuple[list[GpuTimeShares], int]:
    """Return the shares that are drawn, and the number of all sweep points, drawn or not."""
    points = list(dict.fromkeys(row.where for row in rows))
    bars_a_point = len({(row.run, row.variant) for row in rows})
    chosen = {points[number] for number in drawn_points(range(len(points)), bars_a_point)}
    shares: list[GpuTimeShares] = []
    for label, run in runs.items():
        own = sorted({row.point for row in rows if row.run == label and row.where in chosen})
        shares += gpu_time_shares(run, label, own)
    return shares, len(points)
