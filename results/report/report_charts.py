"""Draw every chart of a report: the charts shared by all runs, those about prefill, and those of single runs."""

from collections.abc import Mapping
from dataclasses import dataclass

from wanbed.results.report.charts.changing_links import changing_links_chart
from wanbed.results.report.charts.chart import Chart
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.charts.connections import connections_chart
from wanbed.results.report.charts.gpu_time import gpu_time_chart
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
    charts by its label.
    """

    shared: tuple[Chart, ...]
    losses: tuple[Chart, ...]
    prefill: tuple[Chart, ...]
    own: Mapping[str, tuple[Chart, ...]]

    @property
    def all(self) -> tuple[Chart, ...]:
        """The charts in the order of the page."""
        return (*self.shared, *self.losses, *self.prefill, *(chart for charts in self.own.values() for chart in charts))


def report_charts(reported: ReportedRuns, styles: Styles) -> ReportCharts:
    """Draw the charts that have data."""
    rows, runs = reported.headline, len(reported.by_label)
    several = runs > 1
    timelines = {
        label: timeline_chart(drawn, styles, f"run-{position}", label if several else "", MAX_SPANS // runs)
        for position, (label, drawn) in enumerate(reported.drawn.items())
    }
    shared = [
        iteration_time_chart(rows, styles, "all"),
        heat_map_chart(rows, "all"),
        gpu_time_chart(reported.drawn_shares, len(reported.points), "all"),
        *([] if several else timelines.values()),
        link_throughput_chart(reported.drawn, styles, "all"),
        connections_chart(reported.drawn, styles, "all"),
        changing_links_chart(reported.drawn, styles, "all"),
    ]
    own = {label: _drawn(timeline if several else None) for label, timeline in timelines.items()}
    losses, ttft = loss_chart(reported.losses, styles, "all"), ttft_chart(reported.prefill, styles, "all")
    return ReportCharts(_drawn(*shared), _drawn(losses), _drawn(ttft), own)


def _drawn(*charts: Chart | None) -> tuple[Chart, ...]:
    return tuple(filter(None, charts))
