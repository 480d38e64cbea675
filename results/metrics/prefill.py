"""Count what a prefill service did with its requests, and compute how long they waited.

``requests`` are rows of ``results.records.schema.PREFILL_REQUESTS`` of one trial. Measured are those that arrived
within the trial's measured window: requests during the warm-up or after the last iteration do not count. Source: this
project's definitions.
"""

import numpy as np
import pandas as pd

from results.metrics.intervals import Numbers
from results.metrics.iterations import Window

TTFT_PERCENTILES = (50, 90, 95, 99)

POOL_UTILIZATION = 0.8
"""How busy a dedicated pool is kept that has to answer in time; this project's assumption."""

REJECTION_REASONS = ("slo", "memory", "never_fits", "hold_full")

_TAKEN_IN = ("admitted", "off_loaded")


def arrived_within(requests: pd.DataFrame, window: Window) -> pd.DataFrame:
    """Return the requests that arrived within the window, its end excluded."""
    arrival_ns = requests["arrival_ns"].to_numpy(np.int64)
    own: pd.DataFrame = requests[(window.start_ns <= arrival_ns) & (arrival_ns < window.end_ns)]
    return own


def nearest_rank(values: Numbers, percent: int) -> int | None:
    """Return the percentile by nearest rank: the least value that ``percent`` % of all do not exceed.

    It is one of the values, never one between two. None if there is no value.
    """
    if not len(values):
        return None
    rank = max(1, -(-percent * len(values) // 100))
    return int(np.partition(values, rank - 1)[rank - 1])


def ttft_ns(requests: pd.DataFrame, *, with_kv: bool) -> Numbers:
    """Return the time to first token of every request that has one, nanoseconds, in their order.

    From its arrival until its whole KV cache was at the decode host, or without that transfer until its last layer
    ended. Requests that were not taken in or had not come to an end have none.
    """
    ended = requests["kv_moved_ns" if with_kv else "prefilled_ns"]
    there = ended.notna().to_numpy(bool)
    ended_ns: Numbers = ended.to_numpy()[there].astype(np.int64)
    arrival_ns: Numbers = requests["arrival_ns"].to_numpy(np.int64)[there]
    return np.subtract(ended_ns, arrival_ns, dtype=np.int64)


def outcome_counts(requests: pd.DataFrame, slo_ns: int | None) -> dict[str, int]:
    """Count the requests by outcome.

    ``admitted``, ``off_loaded``, ``held`` and ``rejected`` add up to ``offered``, and ``rejected_<reason>`` to
    ``rejected``. Beside these ``late`` had a TTFT, KV transfer included, above ``slo_ns``; ``unfinished`` were taken in
    and their KV cache had not moved at the end; ``was_held`` waited for admission.
    """
    outcome, reason = (requests[name].to_numpy(object) for name in ("outcome", "reason"))
    rejected = outcome == "rejected"
    moved = requests["kv_moved_ns"].notna().to_numpy(bool)
    reasons = dict.fromkeys((*REJECTION_REASONS, *sorted(set(reason[rejected]))))
    return {
        "offered": len(requests),
        **{name: int((outcome == name).sum()) for name in (*_TAKEN_IN, "held")},
        "rejected": int(rejected.sum()),
        **{f"rejected_{name}": int((rejected & (reason == name)).sum()) for name in reasons},
        "late": int((ttft_ns(requests, with_kv=True) > slo_ns).sum()) if slo_ns is not None else 0,
        "unfinished": int((np.isin(outcome, _TAKEN_IN) & ~moved).sum()),
        "was_held": int(requests["was_held"].to_numpy(bool).sum()),
    }


def prefilled_tokens(requests: pd.DataFrame, window: Window) -> int:
    """Return the prompt tokens of the prefills completed within the window, whenever their requests arrived."""
    ended_ns = requests["prefilled_ns"].to_numpy(np.float64)
    own = (window.start_ns <= ended_ns) & (ended_ns <= window.end_ns)
    return int(requests["prompt_tokens"].to_numpy(np.int64)[own].sum())
