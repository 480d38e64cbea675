"""Traces of requests, and traces scaled to another rate."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from wanbed.ground.errors import InputError
from wanbed.workloads.bubbletea.request import Request


@dataclass(frozen=True)
class RequestTrace:
    """Requests numbered in order of arrival, the first at 0. ``skipped`` counts the unusable lines that were skipped.

    Raises ValueError if there are no requests, or if they are not numbered and ordered like this.
    """

    name: str
    requests: tuple[Request, ...]
    skipped: int = 0

    def __post_init__(self) -> None:
        if not self.requests:
            raise ValueError(f"requests: the trace {self.name!r} has none")
        before_ns = 0
        for number, request in enumerate(self.requests):
            if request.number != number or request.arrival_ns < before_ns:
                raise ValueError(f"requests: number {request.number} of the trace {self.name!r} is out of order")
            before_ns = request.arrival_ns
        if self.requests[0].arrival_ns:
            raise ValueError(f"requests: the first of the trace {self.name!r} arrives later than at 0")

    @property
    def span_ns(self) -> int:
        """The time from the first arrival to the last."""
        return self.requests[-1].arrival_ns

    @property
    def mean_rate_per_s(self) -> float:
        """The number of gaps between arrivals / ``span_ns``: infinite for one burst, 0 for a single request."""
        gaps = len(self.requests) - 1
        if self.span_ns:
            return gaps / (self.span_ns / 1e9)
        return math.inf if gaps else 0.0


def scaled(trace: RequestTrace, rate_per_s: float) -> RequestTrace:
    """Return the trace with every gap stretched by one factor, so that its mean rate is ``rate_per_s``.

    Order, lengths and the relative gaps stay. Each arrival is rounded to the nanosecond from its exact value.

    Raises ValueError for a rate that is not above zero, and InputError, one line, for a trace that has no rate: a
    single request, or all requests at one moment.
    """
    if not (rate_per_s > 0 and math.isfinite(rate_per_s)):
        raise ValueError(f"rate_per_s: {rate_per_s} is no rate above zero")
    if not trace.span_ns:
        raise InputError(f"trace {trace.name!r}: its requests arrive at one moment, there is no rate to scale")
    factor = Fraction(len(trace.requests) - 1) * 10**9 / (Fraction(rate_per_s) * trace.span_ns)
    up, down = factor.numerator, factor.denominator
    return replace(
        trace,
        requests=tuple(
            replace(request, arrival_ns=(2 * request.arrival_ns * up + down) // (2 * down))
            for request in trace.requests
        ),
    )
