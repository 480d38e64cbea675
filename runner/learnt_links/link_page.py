"""Write a learnt link as a self-contained HTML page with charts, and as a JSON document."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from wanbed.ground.files import write_whole
from wanbed.results.report.charts.chart import Chart, Drawing, LegendEntry, PicturePlace
from wanbed.results.report.charts.colours import BLACK, BLUE, BLUISH_GREEN, GREY, ORANGE, VERMILLION, Style
from wanbed.results.report.page_templates import page_environment
from wanbed.results.text import (
    count_text,
    isolated,
    list_text,
    percent_text,
    rate_text,
    seconds_text,
    size_text,
    visible,
)
from wanbed.runner.learnt_links.held_out import CELL, CONSTANT, LEARNT, TRACE, LearntLink
from wanbed.runner.learnt_links.replay import QUANTILES, ReplayOutcome

_MAX_DOTS = 3000
"""The most packets that are drawn, evenly chosen."""

LOG = "log"

_STYLES = {
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
    if len(send_s) > _MAX_DOTS:
        reading += f" One of {-(-len(send_s) // _MAX_DOTS)} is drawn."
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
            axis.bar(places, delays_ms, width * 0.92, color=_STYLES[name].colour)
        axis.set_xticks(range(len(QUANTILES)), [f"p{round(100 * each)}" for each in QUANTILES])
        axis.set_ylabel("one-way delay (ms)")
        axis.grid(axis="y")
        return 220 if layout.narrow else 260

    errors = {name: each.error_ns(truth) for name, each in held_out.items()}
    texts = [f"{seconds_text(error_ns / 1e9)} for the {name}" for name, error_ns in errors.items()]
    reading = f"The mean error of the three quantiles is {list_text(texts)}."
    legend = tuple(LegendEntry(name, Style(_STYLES[name].colour)) for name in outcomes)
    title = "Delays of the packets held out"
    return Chart("replays", title, legend, (Drawing(f"{title}. {reading}", "replays", paint),), reading)


def _thinned(count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(0, count, max(1, -(-count // _MAX_DOTS)))


def cautions(learnt: LearntLink) -> list[str]:
    """Return cautions for whoever uses the link."""
    found = []
    if learnt.link.buffer.buffer_bytes is None:
        found.append(
            "No loss at a full queue: the buffer is not known, only that it holds "
            f"{size_text(learnt.link.buffer.largest_backlog_bytes)}. Replays have no limit."
        )
    if not learnt.link.seen.ever_empty:
        found.append(
            f"{count_text(learnt.link.seen.found_empty, 'packet')} found the queue empty. If it was not, the base "
            "delay is less than this one, and the buffer larger by as much: send less, or log until others have "
            "stopped."
        )
    if learnt.truth is None:
        found.append("Nothing was held out, so nothing says how well the link fits: give a --split below 1.")
    return found


def write_document(document: dict[str, Any], path: Path) -> None:
    """Write the document as JSON."""
    write_whole(path, json.dumps(document, indent=2) + "\n")


def link_document(learnt: LearntLink, source: str, files: dict[str, str], remarks: list[str]) -> dict[str, Any]:
    """Return the link as a JSON document: what was fitted, the outcome of each model, and the files written."""
    link, cross = learnt.link, learnt.link.cross_traffic
    return {
        "log": source,
        "packets": {"fitted": len(learnt.fitted_log), "held_out": len(learnt.held_out_log)},
        "link": {
            "base_delay_ns": round(link.base_delay_ns),
            "rate_bps": round(link.rate_bps),
            "rate_spans": link.bottleneck.spans,
            "noise_ns": round(link.bottleneck.noise_ns),
            "buffer_bytes": None if link.buffer.buffer_bytes is None else round(link.buffer.buffer_bytes),
            "largest_backlog_bytes": round(link.buffer.largest_backlog_bytes),
            "random_loss": link.buffer.random_loss,
            "cross_traffic_bps": round(float(cross.rate_bps.mean())),
            "cross_traffic_piece_ns": cross.piece_ns,
            "cross_traffic_exact_fraction": cross.exact_fraction,
        },
        "trace_form": learnt.trace.form.value,
        "held_out": None
        if learnt.truth is None
        else {
            LOG: _outcome_document(learnt.truth, None),
            **{name: _outcome_document(each, learnt.truth) for name, each in learnt.held_out.items()},
        },
        "files": files,
        "remarks": [*remarks, *cautions(learnt)],
    }


def _outcome_document(each: ReplayOutcome, truth: ReplayOutcome | None) -> dict[str, Any]:
    named = zip(QUANTILES, each.delay_ns, strict=True)
    document: dict[str, Any] = {f"delay_p{round(100 * share)}_ns": _whole(delay) for share, delay in named}
    document["loss"] = each.loss
    return document if truth is None else {**document, "mean_quantile_error_ns": _whole(each.error_ns(truth))}


def _whole(time_ns: float) -> int | None:
    """Return a time in whole nanoseconds, None for the delay of packets of which none arrives."""
    return round(time_ns) if math.isfinite(time_ns) else None


def facts(learnt: LearntLink) -> list[tuple[str, str]]:
    """Return the fitted figures, as terms and texts."""
    link, cross = learnt.link, learnt.link.cross_traffic
    buffer = link.buffer
    size = "at least " + size_text(buffer.largest_backlog_bytes)
    if buffer.buffer_bytes is not None:
        size = (
            f"{size_text(buffer.buffer_bytes)}, {seconds_text(buffer.buffer_bytes * 8 / link.rate_bps)} of the rate, "
            f"from {count_text(buffer.overflow_losses, 'loss', 'losses')} at a full queue"
        )
    form = "others take part of the rate" if learnt.trace.form.value == "rate" else "others are ahead in the queue"
    return [
        ("base delay", f"{seconds_text(link.base_delay_ns / 1e9)} one way"),
        ("bottleneck rate", f"{rate_text(link.rate_bps)}, from {count_text(link.bottleneck.spans, 'span')} of packets"),
        ("buffer", size),
        ("random loss", percent_text(buffer.random_loss)),
        (
            "cross traffic",
            f"{rate_text(float(cross.rate_bps.mean()))} on average, exact in "
            f"{percent_text(cross.exact_fraction)} of the time",
        ),
        (TRACE, f"in the form {learnt.trace.form.value}: {form}"),
        ("noise of a time", seconds_text(link.bottleneck.noise_ns / 1e9)),
        ("packets", f"{len(learnt.fitted_log)} fitted, {len(learnt.held_out_log)} held out"),
    ]


def rows(learnt: LearntLink) -> list[tuple[str, list[float], float, float | None]]:
    """Return each outcome: its name, delays and loss, and the mean error of the delays; all in seconds."""
    if learnt.truth is None:
        return []
    truth = learnt.truth
    found = [(LOG, truth, None), *((name, each, each.error_ns(truth) / 1e9) for name, each in learnt.held_out.items())]
    return [(name, [delay / 1e9 for delay in each.delay_ns], each.loss, error_s) for name, each, error_s in found]


_TEMPLATE = "learnt_link.html.j2"


def write_link_page(learnt: LearntLink, source: str, remarks: list[str], destination: Path) -> None:
    """Write the page of a link that was learnt from ``source``; ``remarks`` are printed first."""
    page = (
        page_environment(Path(__file__).parent)
        .get_template(_TEMPLATE)
        .render(
            source=source,
            remarks=remarks,
            facts=facts(learnt),
            quantiles=[f"p{round(100 * each)}" for each in QUANTILES],
            rows=rows(learnt),
            styles=_STYLES,
            charts=link_charts(learnt),
        )
    )
    write_whole(destination, isolated(visible(page)))
