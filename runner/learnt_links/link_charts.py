"""Draw a learnt link: the log's delays and losses, its cross traffic, and the replays' delays beside the log's."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from wanbed.results.report.charts.canvas import PicturePlace
from wanbed.results.report.charts.chart import Chart, Drawing, LegendEntry
from wanbed.results.report.charts.colours import BLACK, BLUE, BLUISH_GREEN, GREY, ORANGE, VERMILLION, Style
from wanbed.results.text import count_text, list_text, percent_text, rate_text, seconds_text
from wanbed.runner.learnt_links.held_out import CELL, CONSTANT, LEARNT, TRACE, LearntLink
from wanbed.runner.learnt_links.replay.outcome import QUANTILES, ReplayOutcome

MAX_DOTS = 3000
"""The most packets that are drawn, evenly chosen."""

LOG = "log"
STYLES = {
    LOG: Style(BLACK, "o", "-"),
    LEARNT: Style(VERMILLION, "s", "-"),
    TRACE: Style(ORANGE, "^", "-"),
    CONSTANT: Style(BLUE, "D", "-"),
    CELL: Style(BLUISH_GREEN, "v", "-"),
}


def link_charts(learnt: LearntLink) -> list[Chart]:
    """Return the charts of a learnt link; the one of replays only if something was held out."""
    charts = [_log_chart(learnt), _cross_chart(learnt)]
    if learnt.truth is not None:
        charts.append(_replay_chart(learnt.truth, learnt.held_out))
    return charts


def _log_chart(learnt: LearntLink) -> Chart:
    logs = [each for each in (learnt.fitted_log, learnt.held_out_log) if len(each)]
    send_s = np.concatenate([each.send_ns[each.arrived] for each in logs]) / 1e9
    delay_ms = np.concatenate([each.delay_ns for each in logs]) / 1e6
    lost_s = np.concatenate([each.send_ns[~each.arrived] for each in logs]) / 1e9
    split_s = learnt.fitted_log.send_ns[-1] / 1e9
    dots, losses = _thinned(len(send_s)), _thinned(len(lost_s))
    delay, lost = Style(BLACK, "o", ""), Style(VERMILLION, "^", "")

    def paint(figure: Figure, layout: PicturePlace) -> float:
        axis = figure.subplots()
        axis.plot(send_s[dots], delay_ms[dots], ".", color=delay.colour, markersize=2.5 * layout.scale)
        axis.plot(lost_s[losses], np.full(len(losses), 0.0), "^", color=lost.colour, markersize=5 * layout.scale)
        axis.axhline(learnt.link.base_delay_ns / 1e6, color=BLUE, linewidth=1.5 * layout.scale)
        if len(learnt.held_out_log):
            axis.axvline(split_s, color=GREY, linestyle=":", linewidth=1.5 * layout.scale)
        axis.set_ylim(bottom=0)
        axis.set_xlabel("sent at (s)")
        axis.set_ylabel("one-way delay (ms)")
        axis.grid(axis="y")
        return 220 if layout.narrow else 260

    sent = sum(len(each) for each in logs)
    reading = f"{count_text(sent, 'packet')}, {count_text(len(lost_s), 'of them lost', 'of them lost')}."
    if len(learnt.held_out_log):
        reading += f" The link was fitted to those before the dotted line at {split_s:.1f} s."
    if len(send_s) > MAX_DOTS:
        reading += f" One of {-(-len(send_s) // MAX_DOTS)} is drawn."
    legend = (LegendEntry("arrived", delay), LegendEntry("lost", lost), LegendEntry("base delay", Style(BLUE, "", "-")))
    return Chart("log", "The log", legend, (Drawing(f"Delays of the log. {reading}", "log", paint),), reading)


def _cross_chart(learnt: LearntLink) -> Chart:
    cross, rate_bps = learnt.link.cross_traffic, learnt.link.rate_bps
    scale, unit = (1e9, "Gbit/s") if rate_bps >= 1e9 else (1e6, "Mbit/s")
    edges_s = np.append(cross.start_ns, cross.start_ns[-1] + cross.piece_ns) / 1e9
    style = Style(ORANGE, "", "-")

    def paint(figure: Figure, layout: PicturePlace) -> float:
        axis = figure.subplots()
        axis.stairs(cross.rate_bps / scale, edges_s, color=style.colour, fill=True, alpha=0.8)
        axis.axhline(rate_bps / scale, color=BLUE, linewidth=1.5 * layout.scale)
        axis.set_xlim(0, edges_s[-1])
        axis.set_ylim(bottom=0)
        axis.set_xlabel("time (s)")
        axis.set_ylabel(f"rate ({unit})")
        axis.grid(axis="y")
        return 180 if layout.narrow else 220

    reading = (
        f"Others send {rate_text(float(cross.rate_bps.mean()))} on average, "
        f"{percent_text(float(cross.rate_bps.mean()) / rate_bps)} of the bottleneck's {rate_text(rate_bps)}; one value "
        f"each {seconds_text(cross.piece_ns / 1e9)}."
    )
    legend = (LegendEntry("cross traffic", style), LegendEntry("bottleneck rate", Style(BLUE, "", "-")))
    title = "Traffic of others through the bottleneck"
    return Chart("cross-traffic", title, legend, (Drawing(f"{title}. {reading}", "cross", paint),), reading)


def _replay_chart(truth: ReplayOutcome, held_out: Mapping[str, ReplayOutcome]) -> Chart:
    outcomes = {LOG: truth, **held_out}

    def paint(figure: Figure, layout: PicturePlace) -> float:
        axis = figure.subplots()
        width = 0.8 / len(outcomes)
        for number, (name, each) in enumerate(outcomes.items()):
            places = np.arange(len(QUANTILES)) + (number - (len(outcomes) - 1) / 2) * width
            delays_ms = np.nan_to_num(np.array(each.delay_ns) / 1e6, posinf=0.0)  # None arrives: no bar.
            axis.bar(places, delays_ms, width * 0.92, color=STYLES[name].colour)
        axis.set_xticks(range(len(QUANTILES)), [f"p{round(100 * each)}" for each in QUANTILES])
        axis.set_ylabel("one-way delay (ms)")
        axis.grid(axis="y")
        return 220 if layout.narrow else 260

    errors = {name: each.error_ns(truth) for name, each in held_out.items()}
    texts = [f"{seconds_text(error_ns / 1e9)} for the {name}" for name, error_ns in errors.items()]
    reading = f"The mean error of the three quantiles is {list_text(texts)}."
    legend = tuple(LegendEntry(name, Style(STYLES[name].colour)) for name in outcomes)
    title = "Delays of the packets held out"
    return Chart("replays", title, legend, (Drawing(f"{title}. {reading}", "replays", paint),), reading)


def _thinned(count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(0, count, max(1, -(-count // MAX_DOTS)))
