"""Count the outcomes of inference requests, and compute their time to first token (TTFT).

``requests`` are rows of ``wanbed.results.records.schema.PREFILL_REQUESTS`` of one trial. Only requests that arrived
within the trial's measured window count, not those during the warm-up or after the last iteration. Source: this
project's definitions.
"""

import numpy as np
import pandas as pd

from wanbed.results.metrics.intervals import Numbers
from wanbed.results.metrics.iterations import Window

TTFT_PERCENTILES = (50, 90, 95, 99)

POOL_UTILIZATION = 0.8
"""The utilization, a fraction, up to which a dedicated pool can meet its SLO; this project's assumption."""

REJECTION_REASONS = ("slo", "memory", "never_fits", "hold_full")

_ACCEPTED = ("admitted", "off_loaded")


def arrived_within(requests: pd.DataFrame, window: Window) -> pd.DataFrame:
    """Return the requests that arrived within the window, excluding its end."""
    arrival_ns = requests["arrival_ns"].to_numpy(np.int64)
    own: pd.DataFrame = requests[(window.start_ns <= arrival_ns) & (arrival_ns < window.end_ns)]
    return own


def nearest_rank(values: Numbers, percent: int) -> int | None:
    """Return the percentile by nearest rank: the smallest value that ``percent`` % of the values do not exceed.

    It is one of the values, without interpolation. None if there is no value.
    """
    if not len(values):
        return None
    rank = max(1, -(-percent * len(values) // 100))
    return int(np.partition(values, rank - 1)[rank - 1])


def ttft_ns(requests: pd.DataFrame, *, with_kv: bool) -> Numbers:
    """Return the time to first token of every request that has one, in nanoseconds, in the order of the requests.

    It lasts from the request's arrival until its whole KV cache was at the decode host or, if not ``with_kv``, until
    its last layer was computed. Requests that were not accepted or had not finished have none.
    """
    ended = requests["kv_moved_ns" if with_kv else "prefilled_ns"]
    finished = ended.notna().to_numpy(bool)
    ended_ns: Numbers = ended.to_numpy()[finished].astype(np.int64)
    arrival_ns: Numbers = requests["arrival_ns"].to_numpy(np.int64)[finished]
    return np.subtract(ended_ns, arrival_ns, dtype=np.int64)


def outcome_counts(requests: pd.DataFrame, slo_ns: int | None) -> dict[str, int]:
    """Count the requests by outcome.

    ``admitted``, ``off_loaded``, ``held`` and ``rejected`` add up to ``offered``, and all ``rejected_<reason>`` to
    ``rejected``. The other counts overlap with these: ``late`` had a TTFT, including the KV transfer, above
    ``slo_ns``; ``unfinished`` were admitted or off-loaded, but their KV cache was not transferred by the trial's end;
    ``was_held`` waited for admission.
    """
    outcome, reason = (requests[name].to_numpy(object) for name in ("outcome", "reason"))
    rejected = outcome == "rejected"
    moved = requests["kv_moved_ns"].notna().to_numpy(bool)
    reasons = dict.fromkeys((*REJECTION_REASONS, *sorted(set(reason[rejected]))))
    return {
        "offered": len(requests),
        **{name: int((outcome == name).sum()) for name in (*_ACCEPTED, "held")},
        "rejected": int(rejected.sum()),
        **{f"rejected_{name}": int((rejected & (reason == name)).sum()) for name in reasons},
        "late": int((ttft_ns(requests, with_kv=True) > slo_ns).sum()) if slo_ns is not None else 0,
        "unfinished": int((np.isin(outcome, _ACCEPTED) & ~moved).sum()),
        "was_held": int(requests["was_held"].to_numpy(bool).sum()),
    }


def prefilled_tokens(requests: pd.DataFrame, window: Window) -> int:
    """Return the number of prompt tokens whose prefill was completed in the window, whenever their requests arrived."""
    ended_ns = requests["prefilled_ns"].to_numpy(np.float64)
    own = (window.start_ns <= ended_ns) & (ended_ns <= window.end_ns)
    return int(requests["prompt_tokens"].to_numpy(np.int64)[own].sum())
