"""Choose and apply time dilation: run k times slower, so that a small machine can carry faster links.

Delays and compute times are multiplied by k, rates are divided by k, and measured times are divided by k afterwards.
TCP's own timers (minimum retransmission timeout, delayed acknowledgements) are not dilated; therefore ``auto`` keeps k
small.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, Protocol, TypeVar

from wanbed.ground.errors import WanbedError
from wanbed.ground.units import format_rate
from wanbed.results.records.span_log import Span, SpanLogContents

MAX_AUTO_DILATION = 10
USABLE_PERCENT = 80
_MOST_ROUNDS = 5


class CapacityError(WanbedError):
    """Raised if the machine cannot carry the experiment's demand. One line with the remedies; exit status 5."""


def choose_dilation(
    demand_bps: int,
    capacity_bps: int,
    configured: float | Literal["auto"],
    *,
    real_time: bool = False,
    carrier: str = "this machine",
) -> float:
    """Return the dilation factor k.

    A configured number is returned unchanged. ``auto`` is the smallest k >= 1 for which ``demand_bps / k`` is at most
    80 % of ``capacity_bps``, rounded up to 0.1. ``demand_bps`` is ``NetworkDemand.total_bps``: the sum of the WAN node
    pairs that a placement uses, in both directions and with trunk caps applied, plus the highest single rate inside a
    datacenter. Unlimited rates do not count. ``capacity_bps`` is the measured total capacity of the substrate.

    ``carrier`` is what has that capacity, in messages. With ``real_time`` (torch computes) nothing can be dilated.
    Raise CapacityError if ``auto`` would need more than 10 (more than 1 with ``real_time``). Raise ValueError for a
    capacity that is not above 0.
    """
    if configured != "auto":
        return float(configured)
    if capacity_bps <= 0:
        raise ValueError(f"a capacity of {capacity_bps} bit/s is no measurement")
    tenths = -(-demand_bps * 10 * 100 // (USABLE_PERCENT * capacity_bps))
    usable_bps = capacity_bps * USABLE_PERCENT // 100
    asked = (
        f"dilation: the links in use ask for {_rounded(demand_bps)} at once, more than {_rounded(usable_bps)}, "
        f"{USABLE_PERCENT} % of the {_rounded(capacity_bps)} that {carrier} carries"
    )
    if tenths > 10 and real_time:
        raise CapacityError(
            f"{asked}, and what really computes cannot be dilated: lower node_pair_rate, rate or intra.rate, or give "
            "dilation: 1 if not all links are busy at once"
        )
    if tenths > MAX_AUTO_DILATION * 10:
        raise CapacityError(
            f"{asked}, which needs a dilation of {tenths / 10:.1f}, more than the {MAX_AUTO_DILATION} that auto takes, "
            "since TCP's timers do not dilate: lower node_pair_rate, rate or intra.rate, or give a number in dilation"
        )
    return max(tenths, 10) / 10


class Decided(Protocol):
    """A dilation, with whatever it was derived from."""

    @property
    def factor(self) -> float:
        """The factor k."""


D = TypeVar("D", bound=Decided)


def settled_dilation(decide: Callable[[float], D]) -> D:
    """Return the first decision that suffices for what is carried at its own factor.

    ``decide`` measures at a factor what can be carried, and derives a factor from it. Slower links are sent to in
    smaller pieces, which cost a machine more for each byte: what it carries at a factor may ask for a larger one. After
    ``_MOST_ROUNDS`` the last decision is taken as it is. Raise what ``decide`` raises.
    """
    decided, tried = decide(1.0), 1.0
    for _ in range(_MOST_ROUNDS - 1):
        if decided.factor <= tried:
            break
        tried = decided.factor
        again = decide(tried)
        if again.factor > tried:
            decided = again
    return decided


def _rounded(rate_bps: int) -> str:
    """Return a rate as text with 3 significant digits."""
    return format_rate(int(float(f"{rate_bps:.3g}")))


def dilated_ns(duration_ns: int, dilation: float) -> int:
    """Convert a duration of the experiment to the machine's clock: ``duration_ns`` times k, rounded."""
    return round(duration_ns * dilation)


def undilated_ns(time_ns: int, dilation: float) -> int:
    """Convert a time of the machine's clock to the experiment's: ``time_ns`` / k, rounded. The order is kept."""
    return round(time_ns / dilation)


def undilated_span(span: Span, dilation: float) -> Span:
    """Return the span with its times converted to the experiment's clock."""
    return span._replace(start_ns=undilated_ns(span.start_ns, dilation), end_ns=undilated_ns(span.end_ns, dilation))


def undilated_log(log: SpanLogContents, dilation: float) -> SpanLogContents:
    """Return the log with the times of its spans converted to the experiment's clock."""
    return replace(log, spans=tuple(undilated_span(span, dilation) for span in log.spans))
