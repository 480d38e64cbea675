"""Time dilation: running k times slower, so that a small machine carries links that are faster than itself.

Every delay and every computation takes k times as long and every rate is divided by k; what was measured is divided by
k again. TCP's own timers (the retransmission timeout's minimum, delayed acknowledgements) do not dilate, which is why
``auto`` keeps k small.
"""

from typing import Literal

from ground.units import format_rate
from results.records.span_log import Span

MAX_AUTO_DILATION = 10
USABLE_PERCENT = 80


class CapacityError(Exception):
    """The machine cannot carry what an experiment asks; the message is one line with the remedies. Exit status 5."""


def choose_dilation(
    demand_bps: int, capacity_bps: int, asked: float | Literal["auto"], *, real_time: bool = False
) -> float:
    """Return the factor k to run at.

    A number is taken as it is. ``auto`` gives the smallest k >= 1 for which ``demand_bps / k`` is at most 80 % of
    ``capacity_bps``, rounded up to 0.1. ``demand_bps`` is ``NetworkDemand.total_bps``: the WAN pairs that a placement
    uses, both directions at once, summed with trunk caps applied, and the largest single rate inside a datacenter;
    unlimited rates do not count. ``capacity_bps`` is what the substrate was measured to carry in total.

    With ``real_time``, where torch computes, nothing can be dilated. Raises CapacityError if ``auto`` would need more
    than 10 (or than 1, in real time), and ValueError for a capacity that is not above 0.
    """
    if asked != "auto":
        return float(asked)
    if capacity_bps <= 0:
        raise ValueError(f"a capacity of {capacity_bps} bit/s is no measurement")
    tenths = -(-demand_bps * 10 * 100 // (USABLE_PERCENT * capacity_bps))
    if tenths > 10 and real_time:
        raise CapacityError(
            f"dilation: the links in use ask for {_rounded(demand_bps)} at once and this machine carries "
            f"{_rounded(capacity_bps)}, and what torch computes cannot be dilated: lower node_pair_rate, rate or "
            "intra.rate, or replay the computation"
        )
    if tenths > MAX_AUTO_DILATION * 10:
        raise CapacityError(
            f"dilation: the links in use ask for {_rounded(demand_bps)} at once and this machine carries "
            f"{_rounded(capacity_bps)}, which needs a dilation of {tenths / 10:.1f}, more than the {MAX_AUTO_DILATION} "
            "that auto takes, since TCP's timers do not dilate: lower node_pair_rate, rate or intra.rate, or give a "
            "number in dilation"
        )
    return max(tenths, 10) / 10


def _rounded(rate_bps: int) -> str:
    """Return a rate with 3 significant digits, as people read it."""
    return format_rate(int(float(f"{rate_bps:.3g}")))


def dilated_ns(duration_ns: int, dilation: float) -> int:
    """Return how long something lasts on the machine's clock: ``duration_ns`` times k, rounded."""
    return round(duration_ns * dilation)


def undilated_ns(time_ns: int, dilation: float) -> int:
    """Convert a time read off the machine's clock to the experiment's: ``time_ns`` over k, rounded. Order is kept."""
    return round(time_ns / dilation)


def undilated_span(span: Span, dilation: float) -> Span:
    """Return the same span in the experiment's time."""
    return span._replace(start_ns=undilated_ns(span.start_ns, dilation), end_ns=undilated_ns(span.end_ns, dilation))
