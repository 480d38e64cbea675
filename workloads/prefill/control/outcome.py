"""The outcome of each request."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """The state of a request. It has exactly one at any time, and ``HELD`` is not final."""

    HELD = "held"
    ADMITTED = "admitted"
    OFF_LOADED = "off_loaded"
    REJECTED = "rejected"


class Reason(StrEnum):
    """The reason why a request is not admitted.

    ``SLO``: it would be late. ``MEMORY``: a GPU has no room for it now. ``FORECAST``: no bubbles are known yet, which
    is a reason to wait and never the last one. ``NEVER_FITS``: no GPU could hold it, or no bubble one layer of one
    token. ``HOLD_FULL``: too many wait already.
    """

    SLO = "slo"
    MEMORY = "memory"
    FORECAST = "forecast"
    NEVER_FITS = "never_fits"
    HOLD_FULL = "hold_full"


@dataclass(slots=True)
class RequestRecord:
    """One request's way through a DC's prefill; a time is None until it has come.

    ``group`` counts the controller's groups, its pool's after the others. ``reason`` is why a request was rejected or
    is held. ``was_held``: it waited for admission. ``promised_ns`` is when, at admission, its KV cache was
    predicted to be at the decode host. ``started_ns``: its first layer. ``prefilled_ns``: its last layer was done.
    """

    number: int
    datacenter: str
    prompt_tokens: int
    arrival_ns: int
    outcome: Outcome = Outcome.HELD
    reason: Reason | None = None
    was_held: bool = False
    group: int | None = None
    chunks: int = 0
    admitted_ns: int | None = None
    promised_ns: int | None = None
    started_ns: int | None = None
    prefilled_ns: int | None = None
    kv_moved_ns: int | None = None

    @property
    def queue_ns(self) -> int | None:
        """The time from arrival to the first layer."""
        return None if self.started_ns is None else self.started_ns - self.arrival_ns

    @property
    def ttft_without_kv_ns(self) -> int | None:
        """The time from arrival to the end of the prefill."""
        return None if self.prefilled_ns is None else self.prefilled_ns - self.arrival_ns

    @property
    def ttft_ns(self) -> int | None:
        """The time from arrival until the KV cache is at the decode host."""
        return None if self.kv_moved_ns is None else self.kv_moved_ns - self.arrival_ns


def count_outcomes(records: Iterable[RequestRecord], slo_ns: int) -> dict[str, int]:
    """Count the requests by outcome, rejections by their reason as in ``rejected_slo``.

    Beside these, which add up to all requests, ``late`` counts those taken in whose TTFT came out above ``slo_ns``,
    ``broken_promises`` those that came later than promised, ``unfinished`` those taken in whose KV cache has not
    moved, and ``was_held`` those that waited for admission.
    """
    counts: Counter[str] = Counter()
    for record in records:
        rejected = record.outcome is Outcome.REJECTED
        counts[f"rejected_{record.reason}" if rejected else record.outcome.value] += 1
        counts["was_held"] += record.was_held
        if record.outcome in {Outcome.ADMITTED, Outcome.OFF_LOADED}:
            counts["unfinished"] += record.kv_moved_ns is None
        if record.kv_moved_ns is not None and record.promised_ns is not None:
            counts["late"] += record.kv_moved_ns - record.arrival_ns > slo_ns
            counts["broken_promises"] += record.kv_moved_ns > record.promised_ns
    names = [f"rejected_{reason.value}" for reason in Reason if reason is not Reason.FORECAST]
    names += [outcome.value for outcome in Outcome if outcome is not Outcome.REJECTED]
    names += ["late", "broken_promises", "unfinished", "was_held"]
    return {name: counts[name] for name in sorted(names)}
