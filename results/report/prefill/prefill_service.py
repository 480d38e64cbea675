"""Compute the results of a prefill service for each variant, for the report, its charts and its tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from wanbed.results import metrics
from wanbed.results.metrics import NS_PER_S, POOL_UTILIZATION, TTFT_PERCENTILES, Window
from wanbed.results.metrics.intervals import Numbers
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import StoredTrial, swept_values
from wanbed.results.reading.summaries.headline import point_text
from wanbed.results.reading.trial_frames import measured_window, rows_of_trial

NO_POLICY = "none"

Percentiles = Mapping[int, float | None]
"""Seconds by percentile."""


@dataclass(frozen=True)
class PrefillRow:
    """The prefill of one variant of one run in one sweep point, over all repeats.

    - ``counts``: ``metrics.outcome_counts`` of the requests that arrived in the measured windows; ``window_s`` is the
      total length of these windows.
    - ``ttft_ns``, ``ttft_without_kv_ns``: the sorted TTFTs of these requests; percentiles are computed from them.
      ``ttft_of_repeats_ns`` has ``ttft_ns`` of each repeat.
    - ``deadline_overruns``: how often training had to wait for a GPU, in whole trials; ``overrun_ns``: how long in
      total. Both are None if a trial did not record it.
    - ``gpus``: the GPUs of a trial that train or belong to the pool.
    - ``pool_equivalent``, ``pool_equivalent_at_80``: the number of GPUs of a dedicated pool that would have done the
      same prefill, busy all the time or ``POOL_UTILIZATION`` of it.
    """

    run: str
    point: int
    values: Mapping[str, str]
    variant: str
    policy: str
    repeats: int
    window_s: float
    counts: Mapping[str, int]
    ttft_ns: Numbers
    ttft_without_kv_ns: Numbers
    ttft_of_repeats_ns: tuple[Numbers, ...]
    slo_s: float | None
    deadline_overruns: int | None
    overrun_ns: int | None
    gpus: int
    pool_gpus: int
    tokens_per_gpu_hour: float | None
    pool_equivalent: float | None
    pool_equivalent_at_80: float | None

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

    @property
    def ttft_s(self) -> Percentiles:
        """Percentiles of TTFT, including the KV transfer."""
        return _percentiles_s(self.ttft_ns)

    @property
    def ttft_without_kv_s(self) -> Percentiles:
        """Percentiles of TTFT up to the end of the prefill."""
        return _percentiles_s(self.ttft_without_kv_ns)


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
    for trial in run.trials:
        part = _part(run, trial) if serves(trial) else None
        if part is not None:
            parts.setdefault((trial.point, trial.variant), []).append(part)
    return [_row(run, label, point, variant, own) for (point, variant), own in parts.items()]


def _part(run: Run, trial: StoredTrial) -> _Part | None:
    spans = rows_of_trial(run.spans, trial)
    window = measured_window(trial, spans)
    if window is None or not window.length_ns:
        return None
    facts = prefill_facts(trial)
    requests = rows_of_trial(run.prefill_requests, trial)
    arrived = metrics.arrived_within(requests, window)
    training = metrics.spans_of_training_gpus(spans)[["host", "gpu"]].drop_duplicates()
    return _Part(
        facts=facts,
        window=window,
        counts=metrics.outcome_counts(arrived, facts.get("slo_ns")),
        ttft_ns=metrics.ttft_ns(arrived, with_kv=True),
        ttft_without_kv_ns=metrics.ttft_ns(arrived, with_kv=False),
        gpus=len(training) + int(facts.get("pool_gpus") or 0),
        tokens=metrics.prefilled_tokens(requests, window),
        prefill_gpu_ns=metrics.prefill_gpu_time_ns(spans, window),
    )


def _row(run: Run, label: str, point: int, variant: str, parts: list[_Part]) -> PrefillRow:
    windows_ns = sum(part.window.length_ns for part in parts)
    names = dict.fromkeys(name for part in parts for name in part.counts)
    facts = parts[0].facts
    pool = sum(part.prefill_gpu_ns for part in parts) / windows_ns
    gpu_hours = sum(part.gpus * part.window.length_ns for part in parts) / (3600 * NS_PER_S)
    slo_ns = facts.get("slo_ns")
    return PrefillRow(
        run=label,
        point=point,
        values=swept_values(run.manifest, point),
        variant=variant,
        policy=str(facts.get("policy") or ""),
        repeats=len(parts),
        window_s=windows_ns / NS_PER_S,
        counts={name: sum(part.counts.get(name, 0) for part in parts) for name in names},
        ttft_ns=np.sort(np.concatenate([part.ttft_ns for part in parts])),
        ttft_without_kv_ns=np.sort(np.concatenate([part.ttft_without_kv_ns for part in parts])),
        ttft_of_repeats_ns=tuple(np.sort(part.ttft_ns) for part in parts),
        slo_s=slo_ns / NS_PER_S if slo_ns else None,
        deadline_overruns=_sum_of(parts, "deadline_overruns"),
        overrun_ns=_sum_of(parts, "overrun_ns"),
        gpus=parts[0].gpus,
        pool_gpus=int(facts.get("pool_gpus") or 0),
        tokens_per_gpu_hour=sum(part.tokens for part in parts) / gpu_hours if gpu_hours else None,
        pool_equivalent=pool,
        pool_equivalent_at_80=pool / POOL_UTILIZATION,
    )


def _sum_of(parts: list[_Part], fact: str) -> int | None:
    values = [part.facts.get(fact) for part in parts]
    return None if any(each is None for each in values) else sum(int(each) for each in values if each is not None)
