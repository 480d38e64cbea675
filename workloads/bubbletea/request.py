"""One inference request: its prompt and the tokens to decode, its record, and its outcome."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Raises ValueError naming the field.

    ``number`` counts requests from 0 in order of arrival. ``arrival_ns`` counts from the start of the trace.
    """

    number: int
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError(f"number: {self.number} is negative")
        if self.arrival_ns < 0:
            raise ValueError(f"arrival_ns: {self.arrival_ns} is negative")
        if self.prompt_tokens < 1:
            raise ValueError(f"prompt_tokens: {self.prompt_tokens} is below 1")
        if self.output_tokens < 1:
            raise ValueError(f"output_tokens: {self.output_tokens} is below 1")


class Outcome(StrEnum):
    """The state of a request. Every state but ``HELD`` is final."""

    HELD = "held"
    ADMITTED = "admitted"
    OFF_LOADED = "off_loaded"
    REJECTED = "rejected"


class Reason(StrEnum):
    """The reason why a request is not admitted.

    ``SLO``: it would miss the SLO. ``MEMORY``: a GPU has too little free memory now. ``FORECAST``: no bubbles are known
    yet; this is a reason to hold a request, never to reject it. ``NEVER_FITS``: it exceeds a GPU's memory in every
    group, or one layer of one token exceeds every bubble. ``HOLD_FULL``: the hold queue is full.
    """

    SLO = "slo"
    MEMORY = "memory"
    FORECAST = "forecast"
    NEVER_FITS = "never_fits"
    HOLD_FULL = "hold_full"


@dataclass(slots=True)
class RequestRecord:
    """The record of one request in a DC's prefill service. A time is None until it is known.

    ``group`` is the index of the controller's group; those of the pool come last. ``reason`` is why the request was
    rejected or is held. ``was_held``: it waited for admission. ``promised_ns`` is when its KV cache was predicted, at
    admission, to be at the decode host; ``kv_moved_ns`` is when it was there. ``started_ns`` is the start of its first
    layer, ``prefilled_ns`` the end of its last one.
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
    """Count the requests by outcome, and rejected ones by reason, as in ``rejected_slo``. These add up to all requests.

    In addition, ``late`` counts admitted requests with a TTFT above ``slo_ns``, ``broken_promises`` those whose KV
    cache moved later than promised, ``unfinished`` those whose KV cache has not moved, and ``was_held`` all requests
    that waited for admission.
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
