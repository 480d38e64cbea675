"""Draw goodput against WAN latency, beside the values that are recalled from Figure 5 of the paper."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from studies.paper.outcome import PartOutcome
from studies.paper.part import GOODPUT
from wanbed.results.reading.headline import LATENCY_PATH
from wanbed.results.report.charts.canvas import PicturePlace
from wanbed.results.report.charts.chart import Chart, Drawing, LegendEntry
from wanbed.results.report.charts.colours import GREY, Style, variant_styles
from wanbed.results.report.charts.swept_points import latency_ms
from wanbed.results.text import list_text, rate_text

RECALLED = "recalled of the paper"
_RECALLED_STYLE = Style(GREY, "D", "", filled=False)


def goodput_chart(outcomes: Sequence[PartOutcome], recalled_bps: Mapping[str, Mapping[str, float]]) -> Chart | None:
    """Return the chart of every variant's steady goodput by swept latency, None if nothing was measured.

    ``recalled_bps`` holds the paper's recalled goodput by variant and latency.
    """
    measured: dict[str, dict[float, float]] = {}
    for each in outcomes:
        at_ms = latency_ms({LATENCY_PATH: each.latency})
        if at_ms is not None and each.steady_goodput_bps is not None:
            measured.setdefault(each.variant, {})[at_ms] = each.steady_goodput_bps
    if not measured:
        return None
    styles = variant_styles(list(measured))
    known = [
        (latency_ms({LATENCY_PATH: latency}) or 0.0, rate_bps)
        for variant, of_variant in recalled_bps.items()
        if variant in measured
        for latency, rate_bps in of_variant.items()
    ]

    def paint(figure: Figure, layout: PicturePlace) -> float:
        axis = figure.subplots()
        for variant, by_latency in measured.items():
            style = styles[variant]
            axis.plot(
                list(by_latency), [rate_bps / 1e9 for rate_bps in by_latency.values()], color=style.colour,
                marker=style.marker, markersize=9 * layout.scale, linewidth=3 * layout.scale, clip_on=False,
            )  # fmt: skip
        axis.plot(
            [at_ms for at_ms, _ in known], [rate_bps / 1e9 for _, rate_bps in known], linestyle="none",
            color=_RECALLED_STYLE.colour, marker=_RECALLED_STYLE.marker, markersize=7 * layout.scale,
            markerfacecolor="none", clip_on=False,
        )  # fmt: skip
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)
        axis.grid(axis="y")
        axis.set_xticks(sorted({at_ms for by_latency in measured.values() for at_ms in by_latency}))
        axis.set_xlabel("one-way WAN latency (ms)")
        axis.set_ylabel("goodput (Gbit/s)")
        return 240 if layout.narrow else 300

    legend = [LegendEntry(variant, styles[variant]) for variant in measured]
    if known:
        legend.append(LegendEntry(RECALLED, _RECALLED_STYLE))
    reading = " ".join(
        f"{variant[0].upper()}{variant[1:]}: "
        f"{list_text([f'{rate_text(rate_bps)} at {at_ms:g} ms' for at_ms, rate_bps in by_latency.items()])}."
        for variant, by_latency in measured.items()
    )
    title = "Goodput between two hosts against WAN latency"
    return Chart(GOODPUT, title, tuple(legend), (Drawing(f"{title}. {reading}", "goodput", paint),), reading)
