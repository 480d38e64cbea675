"""The report's section on prefill: the service in a row for each variant, and whether it slows training down.

The impact on training is tested on variants that differ only in prefill.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import Any

import numpy as np

from wanbed.results import metrics
from wanbed.results.comparison.pairing import IN_VIRTUAL_TIME, repeatable_within
from wanbed.results.metrics import (
    IDLE_CAUSES,
    NS_PER_S,
    POOL_UTILIZATION,
    REJECTION_REASONS,
    TTFT_PERCENTILES,
    Window,
)
from wanbed.results.metrics.bootstrap import (
    CONFIDENCE,
    FEWEST_REPEATS,
    Interval,
    median_of_medians,
    percentile_intervals,
    ratio_interval,
)
from wanbed.results.metrics.intervals import Numbers
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import StoredTrial, point_text
from wanbed.results.reading.trial_rows import TrialRows
from wanbed.results.records.span_log import PREFILL
from wanbed.results.report.charts.gpu_time import PART_NAMES, GpuTimeShares
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

NO_POLICY = "none"

MAX_CAUSES_READ = 3

_COUNTS = (
    *("offered", "admitted", "off_loaded", "held", "rejected"),
    *(f"rejected_{reason}" for reason in REJECTION_REASONS),
    *("late", "unfinished", "was_held"),
)

_TTFTS = tuple((percent, name) for name in ("ttft", "ttft_without_kv") for percent in TTFT_PERCENTILES)

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

Percentiles = Mapping[int, float | None]
"""Seconds by percentile."""


@dataclass(frozen=True)
class FirstTokenTimes:
    """The sorted times to first token of requests, with and without the KV transfer, and the former of each repeat."""

    whole_ns: Numbers
    without_kv_ns: Numbers
    of_repeats_ns: tuple[Numbers, ...]

    @property
    def whole_s(self) -> Percentiles:
        """Percentiles of TTFT, including the KV transfer."""
        return _percentiles_s(self.whole_ns)

    @property
    def without_kv_s(self) -> Percentiles:
        """Percentiles of TTFT up to the end of the prefill."""
        return _percentiles_s(self.without_kv_ns)

    def intervals_s(self, percents: Sequence[int]) -> Interval | None:
        """Return the 95 % intervals of percentiles of TTFT in seconds, by the bootstrap; None of too few repeats."""
        found = percentile_intervals(self.of_repeats_ns, percents)
        return None if found is None else (found[0] / NS_PER_S, found[1] / NS_PER_S)


@dataclass(frozen=True)
class DeadlineOverruns:
    """The waits of training for a GPU until prefill left it, in whole trials: their number, and their time in total."""

    count: int
    total_ns: int


@dataclass(frozen=True)
class PrefillGpus:
    """The GPUs of a trial that train or belong to the pool, and how many of them do the latter.

    ``pool_equivalent`` is the number of GPUs of a dedicated pool that would have done the same prefill, busy all the
    time. ``tokens_per_hour`` is per GPU, None without a measured time.
    """

    count: int
    pooled: int
    tokens_per_hour: float | None
    pool_equivalent: float

    @property
    def pool_equivalent_at_80(self) -> float:
        """The GPUs of such a pool if busy for ``POOL_UTILIZATION`` of the time."""
        return self.pool_equivalent / POOL_UTILIZATION


@dataclass(frozen=True)
class PrefillRow:
    """The prefill of one variant of one run in one sweep point, over all repeats.

    - ``counts``: ``metrics.outcome_counts`` of the requests that arrived in the measured windows; ``window_s`` is the
      total length of these windows.
    - ``ttft``: the times to first token of these requests.
    - ``overruns``: None if a trial did not record them.
    """

    run: str
    point: int
    values: Mapping[str, str]
    variant: str
    policy: str
    repeats: int
    window_s: float
    counts: Mapping[str, int]
    ttft: FirstTokenTimes
    slo_s: float | None
    overruns: DeadlineOverruns | None
    gpus: PrefillGpus

    @property
    def where(self) -> str:
        """The sweep point's swept values as text for readers."""
        return point_text(self.values)

    @property
    def offered_per_s(self) -> float | None:
        """Requests that arrived per second of the measured windows."""
        return self.counts["offered"] / self.window_s if self.window_s else None

    @property
    def rejections(self) -> dict[str, int]:
        """The number of rejections by reason; reasons without any are left out."""
        reasons = {name.removeprefix("rejected_"): n for name, n in self.counts.items() if name.startswith("rejected_")}
        return {reason: number for reason, number in reasons.items() if number}


def _percentiles_s(times_ns: Numbers) -> Percentiles:
    found = {percent: metrics.nearest_rank(times_ns, percent) for percent in TTFT_PERCENTILES}
    return {percent: None if each is None else each / NS_PER_S for percent, each in found.items()}


def prefill_facts(trial: StoredTrial) -> Mapping[str, Any]:
    """Return what trial.json records of the trial's prefill, {} if there was none."""
    facts = trial.facts.get("prefill")
    return facts if isinstance(facts, dict) else {}


def serves(trial: StoredTrial) -> bool:
    """Return whether the trial had prefill, in bubbles or by a pool."""
    facts = prefill_facts(trial)
    return bool(facts) and (facts.get("policy") != NO_POLICY or bool(facts.get("pool_gpus")))


@dataclass(frozen=True)
class _Part:
    """The contribution of one trial to its row."""

    trial: StoredTrial
    facts: Mapping[str, Any]
    window: Window
    counts: Mapping[str, int]
    ttft_ns: Numbers
    ttft_without_kv_ns: Numbers
    gpus: int
    tokens: int
    prefill_gpu_ns: int


def prefill_rows(run: Run, label: str = "") -> list[PrefillRow]:
    """Return a row for each sweep point and variant with prefill and a measured window, in the order of trials.

    ``label`` distinguishes the run from others.
    """
    parts: dict[tuple[int, str], list[_Part]] = {}
    for own in run.rows.values():
        part = _part(own) if serves(own.trial) else None
        if part is not None:
            parts.setdefault((own.trial.point, own.trial.variant), []).append(part)
    return [_row(label, own) for own in parts.values()]


def _part(own: TrialRows) -> _Part | None:
    spans, requests, window = own.spans, own.prefill_requests, own.window
    if window is None or not window.length_ns:
        return None
    facts = prefill_facts(own.trial)
    arrived = metrics.arrived_within(requests, window)
    training = metrics.spans_of_training_gpus(spans)[["host", "gpu"]].drop_duplicates()
    return _Part(
        trial=own.trial,
        facts=facts,
        window=window,
        counts=metrics.outcome_counts(arrived, facts.get("slo_ns")),
        ttft_ns=metrics.ttft_ns(arrived, with_kv=True),
        ttft_without_kv_ns=metrics.ttft_ns(arrived, with_kv=False),
        gpus=len(training) + int(facts.get("pool_gpus") or 0),
        tokens=metrics.prefilled_tokens(requests, window),
        prefill_gpu_ns=metrics.prefill_gpu_time_ns(spans, window),
    )


def _row(label: str, parts: list[_Part]) -> PrefillRow:
    windows_ns = sum(part.window.length_ns for part in parts)
    names = dict.fromkeys(name for part in parts for name in part.counts)
    trial, facts = parts[0].trial, parts[0].facts
    gpu_hours = sum(part.gpus * part.window.length_ns for part in parts) / (3600 * NS_PER_S)
    slo_ns = facts.get("slo_ns")
    return PrefillRow(
        run=label,
        point=trial.point,
        values=trial.values,
        variant=trial.variant,
        policy=str(facts.get("policy") or ""),
        repeats=len(parts),
        window_s=windows_ns / NS_PER_S,
        counts={name: sum(part.counts.get(name, 0) for part in parts) for name in names},
        ttft=FirstTokenTimes(
            np.sort(np.concatenate([part.ttft_ns for part in parts])),
            np.sort(np.concatenate([part.ttft_without_kv_ns for part in parts])),
            tuple(np.sort(part.ttft_ns) for part in parts),
        ),
        slo_s=slo_ns / NS_PER_S if slo_ns else None,
        overruns=_overruns_of(parts),
        gpus=PrefillGpus(
            parts[0].gpus,
            int(facts.get("pool_gpus") or 0),
            sum(part.tokens for part in parts) / gpu_hours if gpu_hours else None,
            sum(part.prefill_gpu_ns for part in parts) / windows_ns,
        ),
    )


def _overruns_of(parts: list[_Part]) -> DeadlineOverruns | None:
    counts, totals_ns = ([part.facts.get(fact) for part in parts] for fact in ("deadline_overruns", "overrun_ns"))
    if None in counts or None in totals_ns:
        return None
    return DeadlineOverruns(sum(map(int, filter(None, counts))), sum(map(int, filter(None, totals_ns))))


def prefill_tables(rows: Sequence[PrefillRow], shares: Sequence[GpuTimeShares]) -> list[Table]:
    """Return the tables of the service; none if nothing was prefilled. ``shares`` say what filled the bubbles."""
    named = series_columns(rows)
    found = (
        Table.of(
            "prefill",
            "Outcomes of the requests",
            rows,
            [*named, *_OUTCOMES],
            _outcomes_reading(rows) if rows else "",
            note=_NOTE_OF_OUTCOMES,
        ),
        Table.of(
            "prefill_service",
            "Time to first token and throughput",
            rows,
            [*named, *_SERVICE],
            bubbles_reading(shares),
            note=_NOTE_OF_SERVICE,
        ),
    )
    return [table for table in found if table is not None]


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


def prefill_figures(row: PrefillRow | None) -> dict[str, Any]:
    """Return exact figures by name; names begin with ``prefill_`` and contain the unit.

    All are None if there was no prefill.
    """
    figures: dict[str, Any] = {"policy": row and row.policy, "offered_per_s": row and row.offered_per_s}
    figures |= {f"{name}_requests": row and row.counts[name] for name in _COUNTS}
    percentiles = {"ttft": row.ttft.whole_s, "ttft_without_kv": row.ttft.without_kv_s} if row else {}
    figures |= {f"{name}_p{percent}_s": row and percentiles[name][percent] for percent, name in _TTFTS}
    figures |= {
        "slo_s": row and row.slo_s,
        "deadline_overruns": row and row.overruns and row.overruns.count,
        "overrun_ns": row and row.overruns and row.overruns.total_ns,
        "pool_gpus": row and row.gpus.pooled,
        "tokens_per_gpu_hour": row and row.gpus.tokens_per_hour,
        "pool_equivalent_gpus": row and row.gpus.pool_equivalent,
        "pool_equivalent_at_80_percent_gpus": row and row.gpus.pool_equivalent_at_80,
    }
    return {f"prefill_{name}": value for name, value in figures.items()}


def prefill_records(rows: Sequence[PrefillRow]) -> list[dict[str, Any]]:
    """Return one record per row, with the swept values in ``swept``."""
    return [{"swept": dict(row.values), "run": row.run, "variant": row.variant, **prefill_figures(row)} for row in rows]


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


def impact_table(impacts: Sequence[Impact]) -> Table | None:
    """Return the table of prefill's impact on training; None if no variant has a counterpart without prefill."""
    columns = [*series_columns(impacts), *_IMPACT]
    return Table.of("impact", "Impact on training", impacts, columns, "", note=_reading(impacts))


def _ratio(each: Impact) -> TableCell:
    interval = () if each.interval is None else ("{:.4f} to {:.4f}".format(*each.interval),)
    return TableCell(f"{each.ratio:.4f}", interval, each.ratio)


_IMPACT: tuple[Column[Impact], ...] = (
    Column("against", lambda each: each.without),
    Column("pairs", lambda each: str(each.pairs)),
    Column("ratio of iteration times", _ratio),
    Column(f"within {_MARGIN_TEXT}", lambda each: each.words),
)


def _reading(found: Sequence[Impact]) -> str:
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
