"""Draw the activity of every GPU, or every rank of a program, during one measured iteration of each variant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results import metrics
from wanbed.results.metrics import COMPUTE, OPTIMIZER, RankTime, Window
from wanbed.results.metrics.gpu_time import Gpus
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.reading.trial_rows import TrialRows, chosen_rows, spans_of_one_part
from wanbed.results.records.span_log import ALL_REDUCE, ITERATION, JOINT_KINDS, PREFILL
from wanbed.results.report.charts.chart import Chart, Drawing, LegendEntry, PicturePlace, rectangles
from wanbed.results.report.charts.colours import (
    COLLECTIVE_COLOURS,
    COMPUTE_COLOURS,
    GREY,
    PREFILL_COLOUR,
    TRANSFER_COLOURS,
    Style,
    Styles,
)
from wanbed.results.report.charts.letters import text_width_pt, wrapped
from wanbed.results.report.charts.swept_points import DrawnPoint
from wanbed.results.report.reported_runs import ReportedRun, ReportedRuns
from wanbed.results.text import kind_text, list_text, percent_text, seconds_text, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_SCALE_RATIO = 5

MAX_POINTS_UNSAID = 9
"""For more sweep points than this, the reading states that only one is drawn; for fewer the table shows it."""

MAX_SPANS = 24_000
"""The most spans in all pictures of a report; of more, spans that lie close together are drawn as one."""

MERGED_BELOW = 2_000
"""Spans are first merged if closer than 1 / ``MERGED_BELOW`` of a picture's width; this doubles until few are left."""

IDLE_COLOUR = "#EDEDED"

_LANES = {
    **dict.fromkeys(COMPUTE_COLOURS, (0.04, 0.62)),
    # Lower than training, so that the two can be distinguished without colours.
    PREFILL: (0.26, 0.62),
    **dict.fromkeys((*JOINT_KINDS, *COLLECTIVE_COLOURS), (0.68, 0.94)),
    "send": (0.68, 0.80),
    "receive": (0.82, 0.94),
}

_COLOURS = {**COMPUTE_COLOURS, PREFILL: PREFILL_COLOUR, **TRANSFER_COLOURS, **COLLECTIVE_COLOURS}

_NAMES = {
    "backward_input": "backward (input)",
    "backward_weight": "backward (weights)",
    PREFILL: "prefill (lower)",
    "send": "sending",
    "receive": "receiving",
}


@dataclass(frozen=True)
class _Iteration:
    """One iteration of one trial: its window, its spans, and all prefill spans during the window.

    Of replicas that synchronise seldom, the iterations from ``first`` on, and all spans during the window.

    ``rows`` are the GPUs or ranks, of which the first ``MAX_GPUS`` are drawn. ``ranks`` are the times of all ranks of a
    program by rank; it is empty for a schedule, whose GPUs have no iterations of their own.
    """

    trial: StoredTrial
    iteration: int
    spans: pd.DataFrame
    window: Window
    rows: pd.DataFrame
    ranks: Mapping[int, RankTime] = field(default_factory=dict)
    first: int | None = None

    @property
    def title(self) -> str:
        """The variant and the iteration's number."""
        profiled = ", profiled" if self.ranks else ""
        return f"{self.trial.variant}, {self.iterations}{profiled}"

    @property
    def iterations(self) -> str:
        """The number of the iteration, or of several."""
        if self.first is None or self.first == self.iteration:
            return f"iteration {self.iteration}"
        return f"iterations {self.first} to {self.iteration}"

    @property
    def gpus(self) -> int:
        """The number of GPUs, or of a program's ranks, drawn or not."""
        return len(self.ranks) or len(self.rows)

    @property
    def drawn_rows(self) -> pd.DataFrame:
        """The rows that are drawn."""
        return self.rows[:MAX_GPUS]


def timeline_chart(reported: ReportedRuns, styles: Styles) -> Chart | None:
    """Draw the timeline of the only run; None of several, which have it each in its own section."""
    return None if reported.several else _chart_of(reported.runs[0], styles)


def own_timeline_chart(own: ReportedRun, styles: Styles) -> Chart | None:
    """Draw the timeline of one of several runs, for its own section; None of a single run."""
    return _chart_of(own, styles) if own.of_runs > 1 else None


def _chart_of(own: ReportedRun, styles: Styles) -> Chart | None:
    """Draw the typical iteration of each variant at a run's drawn point; None if nothing was measured.

    It is the iteration closest to the median of its trial; its trial is the one closest to the median over repeats.
    """
    drawn, label, salt = own.drawn, own.label if own.of_runs > 1 else "", f"run-{own.position}"
    max_spans = MAX_SPANS // own.of_runs
    if drawn is None:
        return None
    iterations = list(filter(None, map(_typical_iteration, drawn.typical.values())))
    if not iterations:
        return None
    longest_ns = max(iteration.window.length_ns for iteration in iterations)
    shared = longest_ns <= MAX_SCALE_RATIO * min(iteration.window.length_ns for iteration in iterations)
    drawings: list[Drawing] = []
    merged_ns = 0.0
    for position, iteration in enumerate(iterations):
        rows = iteration.drawn_rows
        until_ns = longest_ns if shared else iteration.window.length_ns
        spans, closer_ns = _drawn(iteration.spans, rows, until_ns, max_spans // len(iterations))
        merged_ns = max(merged_ns, closer_ns)

        painter = partial(_paint, spans=spans, iteration=iteration, until_ns=until_ns)
        variant = iteration.trial.variant
        description = f"Timeline of {iteration.iterations} of {variant}"
        heading = LegendEntry(iteration.title, styles.variants[variant])
        drawings.append(Drawing(description, f"{salt}-timeline-{position}", painter, heading, variant, plain=True))
    kinds = set().union(*(iteration.spans["kind"].unique() for iteration in iterations))
    legend = (
        *(
            LegendEntry(_NAMES.get(kind) or kind_text(kind), Style(_COLOURS[kind]))
            for kind in _COLOURS
            if kind in kinds
        ),
        LegendEntry("idle", Style(IDLE_COLOUR)),
    )
    of = f" of {label}" if label else ""
    unit = "GPU by GPU" if any(not iteration.ranks for iteration in iterations) else "rank by rank"
    title = f"One iteration{of}, {unit}" + (f", at {drawn.where}" if drawn.where else "")
    points = len({trial.point for trial in drawn.run.trials})
    only = f" Only this one of the {points} sweep points is drawn." if points > MAX_POINTS_UNSAID else ""
    return Chart(
        f"{salt}-timeline" if label else "timeline",
        title,
        legend,
        tuple(drawings),
        _reading(iterations, shared, merged_ns, _unprofiled(drawn)) + only,
    )


def _typical_iteration(typical: TrialRows) -> _Iteration | None:
    trial, own = typical.trial, typical.spans
    if trial.program is not None:
        return _iteration_of_program(trial, own)
    if trial.sync_every is not None:
        return _synchronisation(trial, own)
    windows = metrics.iteration_windows(typical.spans_of_part)
    measured = windows[windows.index >= trial.warmup_iterations]
    iteration = int(measured.index[metrics.closest_to_median(measured["end_ns"] - measured["start_ns"])])
    window = Window(int(windows["start_ns"][iteration]), int(windows["end_ns"][iteration]))
    prefill = (own["kind"] == PREFILL).to_numpy(bool)
    # Prefill belongs to no iteration: draw all prefill during the window, whatever its iteration number.
    overlapping = (own["start_ns"].to_numpy() < window.end_ns) & (own["end_ns"].to_numpy() > window.start_ns)
    chosen = chosen_rows(own, np.where(prefill, overlapping, own["iteration"].to_numpy() == iteration))
    return _Iteration(trial, iteration, chosen, window, _gpu_rows(chosen))


def _synchronisation(trial: StoredTrial, spans: pd.DataFrame) -> _Iteration | None:
    """Return the iterations from the begin of a synchronisation to its application, the one in the middle, or None.

    Of synchronisations that all began in the warm-up, it is one of those too.
    """
    windows = metrics.successive_windows(metrics.iteration_windows(spans))
    applied = np.unique(spans["iteration"][(spans["kind"] == ALL_REDUCE).to_numpy(bool)].to_numpy(np.int64))
    begun_later = applied[applied - trial.sync_delay >= trial.warmup_iterations]
    candidates = begun_later if len(begun_later) else applied
    if not len(candidates):
        return None
    last = int(candidates[len(candidates) // 2])
    first = last - trial.sync_delay
    window = Window(int(windows["start_ns"][first]), int(windows["end_ns"][last]))
    overlapping = (spans["start_ns"].to_numpy() < window.end_ns) & (spans["end_ns"].to_numpy() > window.start_ns)
    chosen = chosen_rows(spans, overlapping)
    return _Iteration(trial, last, chosen, window, _gpu_rows(chosen), first=first)


def _iteration_of_program(trial: StoredTrial, spans: pd.DataFrame) -> _Iteration | None:
    """Return the typical one of the iterations that a profiler recorded, from its first edge to its last, or None."""
    windows = metrics.iteration_windows(spans)
    profiled = windows.loc[metrics.profiled_iterations(spans, trial.profiled_iterations)]
    if profiled.empty:
        return None
    iteration = int(profiled.index[metrics.closest_to_median(profiled["end_ns"] - profiled["start_ns"])])
    own = spans[(spans["iteration"] == iteration).to_numpy(bool)]
    times = metrics.rank_times(own, np.array([iteration]))
    ranks = {each.rank: each for each in times if each.parts_ns is not None}
    if not ranks:
        return None
    own = own[own["rank"].isin(ranks) & (own["kind"] != ITERATION)]
    window = Window(min(each.start_ns for each in ranks.values()), max(each.end_ns for each in ranks.values()))
    return _Iteration(trial, iteration, own, window, _rank_rows(own), ranks)


def _unprofiled(drawn: DrawnPoint) -> list[str]:
    """Return the variants whose programs ran at this point without a profiler."""
    trials = (trial for trial in drawn.run.trials if trial.point == drawn.point and trial.profiled_iterations == 0)
    return list(dict.fromkeys(trial.variant for trial in trials))


def _merged(spans: pd.DataFrame, closer_ns: float) -> pd.DataFrame:
    """Merge spans of one GPU and kind that lie closer together than ``closer_ns``.

    The spans may come in any order; do not rely on the order of the result.
    """
    spans = spans.sort_values(["row", "kind", "start_ns"], kind="stable")
    same = (spans[["row", "kind"]] == spans[["row", "kind"]].shift()).all(axis=1)
    joined = same & (spans["start_ns"] - spans["end_ns"].shift() < closer_ns)
    return spans.groupby((~joined).cumsum(), as_index=False).agg(
        row=("row", "first"), kind=("kind", "first"), start_ns=("start_ns", "min"), end_ns=("end_ns", "max")
    )


def _drawn(spans: pd.DataFrame, rows: pd.DataFrame, until_ns: int, most: int) -> tuple[pd.DataFrame, float]:
    """Return at most about ``most`` spans to draw, and the distance in ns below which spans were merged.

    The distance is 0 if none were merged.
    """
    place = ["rank"] if "rank" in rows else ["host", "gpu"]
    near = spans[[*place, "kind", "start_ns", "end_ns"]][spans[place[0]].isin(rows[place[0]]).to_numpy(bool)]
    drawn = near.merge(rows[[*place, "row"]], on=place)
    closer_ns = 0.0
    while len(drawn) > most and closer_ns < until_ns:
        closer_ns = 2 * closer_ns or until_ns / MERGED_BELOW
        drawn = _merged(drawn, closer_ns)
    return drawn, closer_ns


def _paint(
    figure: "Figure", layout: PicturePlace, *, spans: pd.DataFrame, iteration: _Iteration, until_ns: int
) -> float:
    axis = figure.subplots()
    window, rows = iteration.window, iteration.drawn_rows
    unit_ns, unit = (1e9, "s") if until_ns >= 2e9 else (1e6, "ms")
    top, bottom = _LANES["forward"]
    place = places(rows)
    begin, end = 0 * place, 0 * place + window.length_ns / unit_ns
    if iteration.ranks:
        drawn = [iteration.ranks[rank] for rank in rows["rank"]]
        edges_ns = np.array([(each.start_ns, each.end_ns) for each in drawn]) - window.start_ns
        begin, end = (edges_ns / unit_ns).T
    rectangles(axis, begin, end, place + top, place + bottom, colour=IDLE_COLOUR)
    for kind, (top, bottom) in _LANES.items():
        own = spans[spans["kind"] == kind]
        if own.empty:
            continue
        left, right = (
            np.clip(own[column].to_numpy(float) - window.start_ns, 0, _end_ns(kind, window, until_ns)) / unit_ns
            for column in ("start_ns", "end_ns")
        )
        row = place[own["row"].to_numpy(int)]
        rectangles(
            axis, left, right, row + top, row + bottom, colour=_COLOURS[kind], edge="white", width=0.3 * layout.scale
        )
    if iteration.ranks:
        axis.vlines([*begin, *end], [*place] * 2, [*place + 1] * 2, colors=GREY, linewidth=1.2 * layout.scale)
    width_pt = 72 * figure.get_figwidth()
    for datacenter, group in rows.groupby("datacenter", sort=False, observed=True):
        heading = float(place[int(group["row"].min())]) - HEADING_ROWS
        if heading > 0:
            axis.axhline(heading, color="#888888", linewidth=0.8 * layout.scale)
        axis.text(
            0, heading + 0.5 * HEADING_ROWS, wrapped(layout.label(str(datacenter)), (1 - LABEL_SHARE) * width_pt, 1),
            transform=axis.get_yaxis_transform(), va="center", ha="left", clip_on=False,
        )  # fmt: skip
    axis.set_yticks(place + 0.5, _row_labels(rows, LABEL_SHARE * width_pt))
    axis.tick_params(axis="y", length=0)
    height = float(place[-1]) + 1
    axis.set_ylim(height, 0)
    axis.set_xlim(0, until_ns / unit_ns)
    axis.locator_params(axis="x", nbins=4 if layout.narrow else 10)
    axis.set_xlabel(f"time since the iteration began ({unit})")
    return 60 + height * (24 if layout.narrow else 30)


def _end_ns(kind: str, window: Window, until_ns: int) -> int:
    """Return where the drawing of a kind ends, in ns: prefill with the iteration, all other kinds with the picture."""
    return window.length_ns if kind == PREFILL else until_ns


def _reading(iterations: Sequence[_Iteration], shared: bool, merged_ns: float, unprofiled: Sequence[str]) -> str:
    shares = []
    for each in iterations:
        alone, both = _computed(each)
        filled = f", {percent_text(both)} including prefill," if both != alone else ""
        shares.append(f"{percent_text(alone)}{filled} of the time with {each.trial.variant}")
    scale = "" if shared or len(iterations) == 1 else " Each picture has its own time scale."
    gpus = max(each.gpus for each in iterations)
    cut = f" The first {MAX_GPUS} of {gpus} GPUs are drawn." if gpus > MAX_GPUS else ""
    these = "this iteration" if len(iterations) == 1 else "these iterations"
    merged = f" Spans less than {seconds_text(merged_ns / 1e9)} apart are drawn as one." if merged_ns else ""
    programs = any(each.ranks for each in iterations)
    edges = " Vertical lines are where a rank's iteration begins and ends." if programs else ""
    missing = f" Nothing was profiled of {list_text(list(unprofiled))}, so that it is not drawn." if unprofiled else ""
    return (
        f"In {these} the GPUs computed {list_text(shares)}; for the rest they were idle.{edges}{scale}{cut}{merged}"
        f"{missing}"
    )


def _computed(each: _Iteration) -> tuple[float | None, float | None]:
    """Return the share of the iteration in which GPUs computed for training, and that including prefill."""
    if each.ranks:
        whole_ns = sum(rank.end_ns - rank.start_ns for rank in each.ranks.values())
        busy = sum((rank.parts_ns or {}).get(part, 0) for rank in each.ranks.values() for part in (COMPUTE, OPTIMIZER))
        return busy / whole_ns, busy / whole_ns
    return metrics.gpu_utilizations(spans_of_one_part(each.trial, each.spans), each.window)


MAX_GPUS = 24

LABEL_SHARE = 0.25
"""The share of a picture's width that a GPU's label may take. A longer one gives only the host's number."""

HEADING_ROWS = 0.7
"""The height of a datacenter's name above its GPUs, as a share of a GPU's row."""


def _gpu_rows(spans: pd.DataFrame) -> pd.DataFrame:
    """Return one row per GPU, datacenters in the order of their first stage; ``row`` counts from the top.

    GPUs of a pool, which have no stage, come after the other GPUs of their datacenter.
    """
    gpus = _gpus(spans)
    gpus.loc[gpus["stage"] < 0, ["pipeline", "stage"]] = np.iinfo(np.int32).max
    gpus["first_stage"] = gpus.groupby("datacenter", observed=True)["stage"].transform("min")
    gpus = gpus.sort_values(["first_stage", "datacenter", "pipeline", "stage", "host", "gpu"], ignore_index=True)
    return gpus.assign(row=range(len(gpus)))


def _gpus(spans: pd.DataFrame) -> pd.DataFrame:
    """Return one row per GPU: its datacenter, host and number, and its first stage and pipeline."""
    numbered = Gpus.of(spans)
    span_of_gpu = np.zeros(len(numbered.index), np.int64)
    span_of_gpu[numbered.of_span] = np.arange(len(spans))
    found = spans[["datacenter", "host", "gpu"]].iloc[span_of_gpu].reset_index(drop=True)
    for name in ("stage", "pipeline"):
        least = np.full(len(found), np.iinfo(np.int32).max, np.int32)
        np.minimum.at(least, numbered.of_span, spans[name].to_numpy())
        found[name] = least
    return found


def _rank_rows(spans: pd.DataFrame) -> pd.DataFrame:
    """Return one row per rank of a program, datacenters in the order of their first rank, numbered likewise."""
    ranks = spans.groupby("rank", as_index=False).agg(
        datacenter=("datacenter", "first"), host=("host", "first"), gpu=("gpu", "first")
    )
    ranks["first_rank"] = ranks.groupby("datacenter", observed=True)["rank"].transform("min")
    ranks = ranks.sort_values(["first_rank", "rank"], ignore_index=True)
    return ranks.assign(row=range(len(ranks)))


def places(rows: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return the upper end of each GPU's row, with a row's height as unit: each datacenter's name takes its own."""
    datacenters = (rows["datacenter"] != rows["datacenter"].shift()).cumsum().to_numpy(float)
    places: npt.NDArray[np.float64] = rows["row"].to_numpy(float) + HEADING_ROWS * datacenters
    return places


def _row_labels(rows: pd.DataFrame, width_pt: float) -> list[str]:
    """Return each rank with its host, or each GPU's host, with the GPU's number if hosts have several.

    A label that is too long is without the rank's host, or without the GPU's datacenter.
    """
    several = rows["gpu"].nunique() > 1
    labels = []
    for row in rows.itertuples():
        gpu = f":{row.gpu}" if several else ""
        if "rank" in rows:
            label, short = visible(f"rank {row.rank} on {row.host}"), f"rank {row.rank}"
        else:
            label, short = visible(f"{row.host}{gpu}"), f"host {str(row.host).removeprefix(f'{row.datacenter}-')}{gpu}"
        labels.append(label if text_width_pt(label) <= width_pt else wrapped(short, width_pt, 1))
    return labels
