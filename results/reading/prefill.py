"""Read the prefill of a run: the outcomes of its requests in a row for each sweep point and variant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wanbed.results import metrics
from wanbed.results.metrics import NS_PER_S, POOL_UTILIZATION, REJECTION_REASONS, TTFT_PERCENTILES, Window
from wanbed.results.metrics.bootstrap import Interval, percentile_intervals
from wanbed.results.metrics.intervals import Numbers
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import StoredTrial, point_text
from wanbed.results.reading.trial_rows import TrialRows

NO_POLICY = "none"

_COUNTS = (
    *("offered", "admitted", "off_loaded", "held", "rejected"),
    *(f"rejected_{reason}" for reason in REJECTION_REASONS),
    *("late", "unfinished", "was_held"),
)

_TTFTS = tuple((percent, name) for name in ("ttft", "ttft_without_kv") for percent in TTFT_PERCENTILES)

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
