"""The report's section on prefill: the service, its time to first token (TTFT), and whether it slows training down.

The impact on training is tested on variants that differ only in prefill.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wanbed.results import metrics
from wanbed.results.comparison.pairing import IN_VIRTUAL_TIME, repeatable_within
from wanbed.results.metrics import IDLE_CAUSES, NS_PER_S, TTFT_PERCENTILES
from wanbed.results.metrics.bootstrap import (
    CONFIDENCE,
    FEWEST_REPEATS,
    Interval,
    median_of_medians,
    ratio_interval,
)
from wanbed.results.metrics.intervals import Numbers
from wanbed.results.reading.prefill import PrefillRow, prefill_rows, serves
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import RATE_PATH, point_text
from wanbed.results.records.span_log import PREFILL
from wanbed.results.report.charts.chart import (
    Chart,
    Drawing,
    PicturePlace,
    interval_bar,
    panel_title,
    panel_width_pt,
    panels,
    series_legend,
    series_names,
)
from wanbed.results.report.charts.colours import BLACK, GREY, Style, Styles, lightened
from wanbed.results.report.charts.gpu_time import PART_NAMES, GpuTimeShares, drawn_shares
from wanbed.results.report.reported_runs import ReportedRun, ReportedRuns
from wanbed.results.report.section import Section
from wanbed.results.report.table import Column, Table, TableCell, series_columns
from wanbed.results.text import (
    UNKNOWN,
    amount_text,
    count_text,
    list_text,
    percent_text,
    seconds_text,
    three_digits,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as MatplotlibAxis
    from matplotlib.figure import Figure

MAX_CAUSES_READ = 3

_NOTE_OF_OUTCOMES = (
    "Requests count if they arrived after training's warm-up and before its last iteration ended; deadline overruns "
    "count over the whole trial. Unfinished: admitted or off-loaded, but not answered when the trial ended. Late: the "
    "first token came after the SLO. Deadline overrun: training had to wait for a GPU until prefill left it."
)

_NOTE_OF_SERVICE = (
    "TTFT, the time to first token, lasts from a request's arrival until its whole KV cache is at the decode host; "
    "the second time is without that transfer. Unfinished requests have none and are left out. Percentiles are by "
    "nearest rank. Tokens per GPU-hour are the prompt tokens whose prefill was completed in the measured time, divided "
    "by the hours of all GPUs, including a pool's. The last column is the number of GPUs of a dedicated pool that "
    "would have spent as much time on prefill, if busy all the time and if busy 80 % of the time."
)


def served(own: ReportedRun) -> list[PrefillRow]:
    """Return a run's rows of the prefill."""
    return prefill_rows(own.run, own.label)


def outcomes_table(reported: ReportedRuns) -> Table | None:
    """Return the table of the requests' outcomes; None if nothing was prefilled."""
    rows = reported.rows(served)
    return Table.of(
        "prefill",
        "Outcomes of the requests",
        rows,
        [*series_columns(rows), *_OUTCOMES],
        _outcomes_reading(rows) if rows else "",
        note=_NOTE_OF_OUTCOMES,
    )


def service_table(reported: ReportedRuns) -> Table | None:
    """Return the table of the service and of how it filled the bubbles; None if nothing was prefilled."""
    rows = reported.rows(served)
    if not rows:
        return None
    return Table.of(
        "prefill_service",
        "Time to first token and throughput",
        rows,
        [*series_columns(rows), *_SERVICE],
        bubbles_reading(reported.once(drawn_shares)),
        note=_NOTE_OF_SERVICE,
    )


def _requests(row: PrefillRow) -> TableCell:
    rate = () if row.offered_per_s is None else (f"{three_digits(row.offered_per_s)} a second",)
    return TableCell(str(row.counts["offered"]), rate)


def _rejected(row: PrefillRow) -> TableCell:
    reasons = tuple(f"{number} {reason.replace('_', ' ')}" for reason, number in row.rejections.items())
    return TableCell(str(row.counts["rejected"]), reasons)


def _overruns(row: PrefillRow) -> TableCell:
    if row.overruns is None:
        return TableCell(UNKNOWN)
    lasted = (seconds_text(row.overruns.total_ns / 1e9),) if row.overruns.total_ns else ()
    return TableCell(str(row.overruns.count), lasted)


def _ttft(percent: int, row: PrefillRow) -> TableCell:
    whole_s, without_kv_s = row.ttft.whole_s[percent], row.ttft.without_kv_s[percent]
    beneath = () if without_kv_s is None else (seconds_text(without_kv_s),)
    return TableCell(seconds_text(whole_s), beneath, whole_s)


def _pool(row: PrefillRow) -> TableCell:
    gpus = row.gpus
    return TableCell(three_digits(gpus.pool_equivalent), (f"{three_digits(gpus.pool_equivalent_at_80)} at 80 %",))


_OUTCOMES: tuple[Column[PrefillRow], ...] = (
    Column("requests", _requests),
    Column("admitted to bubbles", lambda row: str(row.counts["admitted"])),
    Column("off-loaded to the pool", lambda row: str(row.counts["off_loaded"])),
    Column("of them unfinished", lambda row: str(row.counts["unfinished"])),
    Column("held at the end", lambda row: str(row.counts["held"])),
    Column("rejected", _rejected),
    Column("late", lambda row: str(row.counts["late"])),
    Column("deadline overruns", _overruns),
)

_SERVICE: tuple[Column[PrefillRow], ...] = (
    *(Column[PrefillRow](f"TTFT p{percent}", partial(_ttft, percent)) for percent in TTFT_PERCENTILES),
    Column(
        "tokens per GPU-hour",
        lambda row: TableCell(amount_text(row.gpus.tokens_per_hour), value=row.gpus.tokens_per_hour),
    ),
    Column("a pool's GPUs for it", _pool),
)


def _outcomes_reading(rows: Sequence[PrefillRow]) -> str:
    """Describe what became of the requests, of which there are some, and what training waited for them."""
    offered, accepted = (
        sum(row.counts[name] for row in rows for name in names) for names in (("offered",), ("admitted", "off_loaded"))
    )
    late = sum(row.counts["late"] for row in rows)
    overruns: dict[str, int] = {}
    for row in rows:
        if row.overruns is not None:
            overruns[row.variant] = overruns.get(row.variant, 0) + row.overruns.count
    waits = [f"{count_text(number, 'time')} with {variant}" for variant, number in overruns.items() if number]
    waited = f"had to wait for a GPU {list_text(waits)}" if waits else "never had to wait for a GPU"
    others = " and never otherwise" if 0 < len(waits) < len(overruns) else ""
    share = percent_text(accepted / offered) if offered else "none"
    return (
        f"Of {count_text(offered, 'request')} that arrived while training was measured, {share} were admitted or "
        f"off-loaded, and {late or 'none'} of these answered later than the SLO."
        + (f" Training {waited}{others}." if overruns else "")
    )


def bubbles_reading(shares: Sequence[GpuTimeShares]) -> str:
    """Describe how much of the last sweep point's bubbles is filled, and why the rest is not; "" if none is filled."""
    filled = [each for each in shares if each.parts_ns.get(PREFILL)]
    if not filled:
        return ""
    last = [each for each in filled if each.values == filled[-1].values]
    several = len({each.run for each in last}) > 1
    sentences = []
    for each in last:
        name = f"{each.variant} in {each.run}" if several else each.variant
        left_ns = each.bubbles_ns - each.parts_ns[PREFILL]
        share = percent_text(each.parts_ns[PREFILL] / each.bubbles_ns)
        sentence = f"{name} filled {share} of its bubbles"
        causes = sorted((cause for cause in IDLE_CAUSES if each.parts_ns[cause]), key=lambda own: -each.parts_ns[own])
        if left_ns:
            why = [
                f"{percent_text(each.parts_ns[cause] / left_ns)} {PART_NAMES[cause].removeprefix('idle: ')}"
                for cause in causes[:MAX_CAUSES_READ]
            ]
            sentence += f" (of what stayed empty, {list_text(why)})"
        sentences.append(sentence)
    where = point_text(last[0].values)
    return (f"With {where}: " if where else "") + "; ".join(sentences) + "."


MARGIN = 0.005
"""The ratio counts as no impact if it differs from 1 by at most this: 0.5 %."""

_MARGIN_TEXT = f"{100 * MARGIN:g} %"

FEWEST_PAIRS = 5
"""The fewest repeats of both variants that show the noise between runs well enough."""

WITHIN, BEYOND, UNDECIDED = "within", "beyond", "undecided"

_PREFILL_ALONE = ("name", "prefill", "pool")
"""The settings that may differ between a variant with prefill and its counterpart without."""


@dataclass(frozen=True)
class Impact:
    """A variant with prefill against the first variant without prefill that is otherwise equal, at one sweep point.

    ``ratio`` is the iteration time of ``variant`` divided by that of ``without``; each is the median over repeats of
    the repeats' medians, over the ``pairs`` repeats that both have. ``interval`` is the ratio's 95 % interval
    (``wanbed.results.metrics.bootstrap``), None if too few repeats were measured or the run was simulated.
    ``repeatable_within`` is the largest relative error of the ratio if it is known without repeats, else None; it is 0
    for a simulation, which is deterministic.
    """

    run: str
    point: int
    values: Mapping[str, str]
    without: str
    variant: str
    pairs: int
    ratio: float
    interval: tuple[float, float] | None
    repeatable_within: float | None
    simulated: bool

    @property
    def where(self) -> str:
        """The sweep point's swept values as text for readers."""
        return point_text(self.values)

    @property
    def verdict(self) -> str:
        """The place of the interval: within the margin, beyond it, or neither.

        Without an interval, ``repeatable_within`` gives one.
        """
        ends = self.interval
        if ends is None and self.repeatable_within is not None:
            ends = self.ratio / (1 + self.repeatable_within), self.ratio * (1 + self.repeatable_within)
        if ends is None:
            return UNDECIDED
        if all(1 - MARGIN <= end <= 1 + MARGIN for end in ends):
            return WITHIN
        return BEYOND if ends[0] > 1 + MARGIN or ends[1] < 1 - MARGIN else UNDECIDED

    @property
    def words(self) -> str:
        """The verdict as a table shows it."""
        few = self.repeatable_within is None and self.pairs < FEWEST_PAIRS
        texts = {WITHIN: "no impact", BEYOND: "slower" if self.ratio > 1 else "faster", UNDECIDED: "undecided"}
        none = ", no interval" if few and self.interval is None else ""
        return texts[self.verdict] + (f", with {self.pairs} of at least {FEWEST_PAIRS} pairs{none}" if few else "")


def impacts(run: Run, label: str = "") -> list[Impact]:
    """Return the impact at each sweep point of each variant with prefill and a counterpart, in the order of trials."""
    times_s: dict[tuple[int, str], dict[int, list[float]]] = {}
    serving: dict[tuple[int, str], bool] = {}
    for trial, time_s in zip(run.trials, run.summary["iteration_time_s"], strict=True):
        key = (trial.point, trial.variant)
        serving[key] = serving.get(key, False) or serves(trial)
        if not isnan(time_s):
            times_s.setdefault(key, {})[trial.repeat] = [time_s]
    settings = {variant: _settings(run.manifest, variant) for variant in run.variants}
    found = []
    for (point, variant), own in times_s.items():
        if not serving[point, variant]:
            continue
        others = (
            other
            for (at, other) in times_s
            if at == point and not serving[at, other] and settings[other] == settings[variant]
        )
        without = next(others, None)
        shared = sorted(own.keys() & times_s[point, without].keys()) if without is not None else []
        if without is None or not shared:
            continue
        alone, both = ([times_s[point, name][repeat] for repeat in shared] for name in (without, variant))
        alone_s, both_s = median_of_medians(alone), median_of_medians(both)
        if not alone_s or both_s is None:
            continue
        interval = None if run.exact(point) else ratio_interval(alone, both, CONFIDENCE)
        of_one_run = repeatable_within(run, point)
        found.append(
            Impact(
                run=label,
                point=point,
                values=run.values(point),
                without=without,
                variant=variant,
                pairs=len(shared),
                ratio=both_s / alone_s,
                interval=interval,
                repeatable_within=None if of_one_run is None else 2 * of_one_run,
                simulated=run.simulated,
            )
        )
    return found


def _settings(manifest: Mapping[str, Any], variant: str) -> str:
    """Return all settings of a variant, except its name, prefill and pool, as one JSON text."""
    listed = (manifest.get("experiment") or {}).get("variants") or manifest.get("variants") or ()
    own = next((each for each in listed if each.get("name") == variant), {"name": variant, "unknown": variant})
    kept = {name: value for name, value in own.items() if name not in _PREFILL_ALONE}
    return json.dumps(kept, sort_keys=True, default=str)


def compared(own: ReportedRun) -> list[Impact]:
    """Return the impacts of a run's prefill."""
    return impacts(own.run, own.label)


def impact_table(reported: ReportedRuns) -> Table | None:
    """Return the table of prefill's impact on training; None if no variant has a counterpart without prefill."""
    found = reported.rows(compared)
    columns = [*series_columns(found), *_IMPACT]
    return Table.of("impact", "Impact on training", found, columns, "", note=_impact_reading(found))


def _ratio(each: Impact) -> TableCell:
    interval = () if each.interval is None else ("{:.4f} to {:.4f}".format(*each.interval),)
    return TableCell(f"{each.ratio:.4f}", interval, each.ratio)


_IMPACT: tuple[Column[Impact], ...] = (
    Column("against", lambda each: each.without),
    Column("pairs", lambda each: str(each.pairs)),
    Column("ratio of iteration times", _ratio),
    Column(f"within {_MARGIN_TEXT}", lambda each: each.words),
)


def _impact_reading(found: Sequence[Impact]) -> str:
    """Say how the impact on training is judged; "" if there is none to judge."""
    if not found:
        return ""
    if all(each.simulated and each.interval is None for each in found):
        return (
            f"Simulated without noise: no impact means a ratio of iteration times within {_MARGIN_TEXT} of 1. "
            "Only an emulation can show that prefill has no impact on real training."
        )
    return (
        f"No impact: the whole {100 * CONFIDENCE:.0f} % bootstrap interval of the ratio of iteration times lies within "
        f"{_MARGIN_TEXT} of 1. A pair is a repeat that both variants have; the two are run in turn. At least "
        f"{FEWEST_PAIRS} pairs are needed, and fewer than {FEWEST_REPEATS} have no interval."
        + (f" {_VIRTUAL}" if any(_in_virtual_time(each) for each in found) else "")
    )


_VIRTUAL = (
    f"In virtual time repeats differ by at most {100 * IN_VIRTUAL_TIME:g} %: a ratio that is within the margin by more "
    "than that needs no interval."
)


def _in_virtual_time(impact: Impact) -> bool:
    return impact.interval is None and bool(impact.repeatable_within)


def impact_records(impacts: Sequence[Impact]) -> list[dict[str, Any]]:
    """Return one record per impact, with the swept values in ``swept``."""
    records = []
    for each in impacts:
        low, high = each.interval or (None, None)
        records.append(
            {
                "swept": dict(each.values),
                "run": each.run,
                "variant": each.variant,
                "without": each.without,
                "pairs": each.pairs,
                "iteration_time_ratio": each.ratio,
                "iteration_time_ratio_low": low,
                "iteration_time_ratio_high": high,
                "verdict": each.verdict,
                "simulated": each.simulated,
            }
        )
    return records


MAX_PANELS = 9
MAX_STEPS = 300
"""The most requests drawn of one distribution; of more, evenly spaced ones are drawn."""
DRAWN_PERCENTILES = (50, 99)
LOGARITHMIC_FROM = 30
"""Times that differ by more than this factor are drawn on a logarithmic axis."""
MAX_VARIANTS_READ = 3

_BAND_PERCENTS = range(1, 101)

_Series = dict[tuple[str, str], list[PrefillRow]]


def ttft_chart(reported: ReportedRuns, styles: Styles) -> Chart | None:
    """Draw the distribution of TTFT at each sweep point, or percentiles by request rate if only that was swept.

    None if no request has a TTFT.
    """
    answered = [row for row in reported.rows(served) if len(row.ttft.whole_ns)]
    if not answered:
        return None
    legend = series_legend(styles, *series_names(answered))
    by_rate = all(list(row.values) == [RATE_PATH] for row in answered) and len({row.where for row in answered}) > 1
    title = "Time to first token" + (" against the rate of requests" if by_rate else "")
    points: dict[str, list[PrefillRow]] = {}
    for row in answered:
        points.setdefault(row.where, []).append(row)
    shown = dict(list(points.items())[-MAX_PANELS:])

    def paint(figure: "Figure", layout: PicturePlace) -> float:
        if by_rate:
            return _paint_percentiles(figure, layout, answered, styles)
        return _paint_distributions(figure, layout, shown, styles)

    reading = _ttft_reading(list(points.values())[-1])
    reading += " Thin lines exclude the KV transfer"
    reading += "; the dash-dotted line is the SLO." if any(row.slo_s for row in answered) else "."
    reading += _intervals_reading(answered)
    if not by_rate and len(shown) < len(points):
        reading += f" The last {len(shown)} of {len(points)} sweep points are drawn; the table has all."
    drawing = Drawing(f"{title}. {reading}", "all-ttft", paint)
    return Chart("ttft", title, legend, (drawing,), reading, frozenset("xy"))


def _grid(figure: "Figure", layout: PicturePlace, count: int) -> tuple[list["Axes"], int, int]:
    columns = 1 if layout.narrow else min(3, count)
    axes, grid_rows = panels(figure, count, columns)
    return axes, columns, grid_rows * (240 if layout.narrow else 290)


def _paint_distributions(
    figure: "Figure", layout: PicturePlace, points: Mapping[str, Sequence[PrefillRow]], styles: Styles
) -> float:
    axes, columns, height = _grid(figure, layout, len(points))
    width_pt, further_lines = panel_width_pt(figure, columns), 0
    for position, (axis, own) in enumerate(zip(axes, points.values(), strict=True)):
        drawn_ns = [times_ns for row in own for times_ns in (row.ttft.whole_ns, row.ttft.without_kv_ns)]
        drawn_s = np.concatenate(drawn_ns) / NS_PER_S
        further_lines = max(further_lines, panel_title(axis, point_text(own[0].values, layout.labels), width_pt))
        for row in own:
            style = styles.of_series(row.variant, row.run)
            interval = row.ttft.intervals_s(_BAND_PERCENTS)
            if interval is not None:
                _band(axis, interval, style, layout)
            # Without an interval there are one or two repeats: draw each of them.
            whole = [row.ttft.whole_ns] if interval is not None else row.ttft.of_repeats_ns
            for times_ns, width, strength in (
                (row.ttft.without_kv_ns, 1.0, 0.7),
                *((each, 2.2, 1.0) for each in whole),
            ):
                if len(times_ns):
                    axis.step(
                        *_steps(times_ns), where="post", color=style.colour, linestyle=style.line,
                        linewidth=width * layout.scale, alpha=strength,
                    )  # fmt: skip
        for slo_s in {row.slo_s for row in own if row.slo_s}:
            axis.axvline(slo_s, color=GREY, linestyle="-.", linewidth=layout.scale)
        _logarithmic_if_wide(axis.set_xscale, axis.xaxis, drawn_s)
        axis.set_ylim(0, 102)
        axis.set_xlabel("time to first token (s)")
        axis.set_ylabel("requests answered (%)" if position % columns == 0 else "")
        axis.grid()
    return height + -(-len(axes) // columns) * further_lines * layout.line_px


def _paint_percentiles(figure: "Figure", layout: PicturePlace, rows: Sequence[PrefillRow], styles: Styles) -> float:
    axes, _, height = _grid(figure, layout, len(DRAWN_PERCENTILES))
    drawn = (row.ttft.without_kv_s[percent] for row in rows for percent in DRAWN_PERCENTILES)
    drawn_s = [*(each for each in drawn if each), *(row.slo_s for row in rows if row.slo_s)]
    series: _Series = {}
    for row in rows:
        series.setdefault((row.variant, row.run), []).append(row)
    for axis, percent in zip(axes, DRAWN_PERCENTILES, strict=True):
        axis.set_title(f"{percent}th percentile", fontsize="medium", loc="left")
        for (variant, run), found in series.items():
            style = styles.of_series(variant, run)
            own = sorted(found, key=lambda row: row.offered_per_s or 0)
            rates = [row.offered_per_s or 0 for row in own]
            times_s, without_s = (
                np.array([percentiles[percent] for percentiles in of_rows], float)
                for of_rows in ([row.ttft.whole_s for row in own], [row.ttft.without_kv_s for row in own])
            )
            axis.plot(rates, without_s, color=style.colour, linestyle=style.line, linewidth=layout.scale, alpha=0.7)
            axis.plot(rates, times_s, color=style.colour, linestyle=style.line, linewidth=2.2 * layout.scale)
            points = [
                (rate, time_s) for rate, row in zip(rates, own, strict=True) for time_s in _points_of(row, percent)
            ]
            axis.plot(
                *zip(*points, strict=True), color=style.colour, marker=style.marker, linestyle="none",
                markersize=6 * layout.scale, markerfacecolor=style.colour if style.filled else "white",
            )  # fmt: skip
            for rate, row in zip(rates, own, strict=True):
                interval = row.ttft.intervals_s([percent])
                if interval is not None:
                    interval_bar(axis, rate, (interval[0][0], interval[1][0]), layout.scale)
        for slo_s in {row.slo_s for row in rows if row.slo_s}:
            axis.axhline(slo_s, color=GREY, linestyle="-.", linewidth=layout.scale)
        _logarithmic_if_wide(axis.set_yscale, axis.yaxis, np.array(drawn_s, float))
        if axis.get_yscale() == "linear":
            axis.set_ylim(bottom=0)
        axis.set_xlim(left=0)
        axis.set_xlabel("requests a second, offered")
        axis.set_ylabel("time to first token (s)" if layout.narrow or percent == DRAWN_PERCENTILES[0] else "")
        axis.grid()
    return height


def _band(axis: "Axes", interval_s: Interval, style: Style, layout: PicturePlace) -> None:
    """Fill between the ends of the percentiles' intervals; the outline makes it visible in a grey print."""
    axis.fill_betweenx(
        _BAND_PERCENTS, *interval_s, facecolor=lightened(style.colour), edgecolor=BLACK, alpha=0.5,
        linewidth=0.6 * layout.scale,
    )  # fmt: skip


def _points_of(row: PrefillRow, percent: int) -> list[float]:
    """Return the percentile of all requests in seconds if it has an interval, else the percentile of every repeat."""
    has_interval = row.ttft.intervals_s([percent]) is not None
    repeats = (row.ttft.whole_ns,) if has_interval else row.ttft.of_repeats_ns
    found = (metrics.nearest_rank(times_ns, percent) for times_ns in repeats)
    return [each / NS_PER_S for each in found if each is not None]


def _intervals_reading(rows: Sequence[PrefillRow]) -> str:
    """Return a text that explains the bands, the bars and the points."""
    measured = [sum(1 for times_ns in row.ttft.of_repeats_ns if len(times_ns)) for row in rows]
    intervals = (
        " Bands and bars are 95 % intervals, by the bootstrap over repeats." if max(measured) >= FEWEST_REPEATS else ""
    )
    few = any(1 < repeats < FEWEST_REPEATS for repeats in measured)
    return intervals + (" Where there are two repeats, each is drawn by itself." if few else "")


def _logarithmic_if_wide(
    set_scale: Callable[[str], None], axis: "MatplotlibAxis", times_s: npt.NDArray[np.float64]
) -> None:
    """Set a logarithmic axis, labelled with plain numbers, if the times differ by more than ``LOGARITHMIC_FROM``."""
    if len(times_s) and times_s.min() > 0 and times_s.max() > LOGARITHMIC_FROM * times_s.min():
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

        set_scale("log")
        axis.set_major_locator(LogLocator(10, subs=(1, 2, 5), numticks=8))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _steps(times_ns: Numbers) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return times in seconds, and the percentage of all requests that were answered within each of them.

    At most ``MAX_STEPS`` times are chosen; the shortest and the longest are among them.
    """
    ranks = np.unique(np.linspace(0, len(times_ns) - 1, min(len(times_ns), MAX_STEPS)).round().astype(np.int64))
    times_s = times_ns[ranks] / NS_PER_S
    return np.append(times_s[:1], times_s), np.append(0.0, 100 * (ranks + 1) / len(times_ns))


def _ttft_reading(rows: Sequence[PrefillRow]) -> str:
    where = f"With {rows[0].where}, " if rows[0].where else ""
    several = len({row.run for row in rows}) > 1
    lines = []
    for row in rows[:MAX_VARIANTS_READ]:
        name = f"{row.variant} in {row.run}" if several else row.variant
        half_s, most_s = (seconds_text(row.ttft.whole_s[percent]) for percent in DRAWN_PERCENTILES)
        lines.append(f"{half_s} and {most_s} with {name}")
    half = "half" if where else "Half"
    answered = f"{half} and 99 % of the answered requests had their first token, including the KV transfer, within"
    return f"{where}{answered} {list_text(lines)}."


PREFILL_SECTION = Section(
    "Prefill in the bubbles", (outcomes_table, service_table), (ttft_chart,), tables_below=(impact_table,)
)
