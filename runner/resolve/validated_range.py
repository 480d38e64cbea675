"""The range in which simulated losses and jitter were compared with virtual time: docs/lossy-links.md has the tables.

A simulation outside of it runs, and is marked.
"""

from collections.abc import Iterator
from typing import Any, Final

from wanbed.ground.impairments import IMPAIRMENTS, Impairment
from wanbed.ground.units import format_duration, format_fraction
from wanbed.testbed.network.links.wan_link import LinkConditions

MOST: Final[dict[str, float]] = {"loss": 0.01, "jitter_ns": 5_000_000}
"""The most of each impairment, by its field."""

LATENCIES_NS: Final = (10_000_000, 80_000_000)
"""The shortest and the longest one-way latency of links that lose packets."""

CONGESTION: Final = frozenset({"cubic", "bbr"})
"""The congestion controls over such links."""

CUBIC_LEAST_LOSS: Final = 0.001
"""The least loss for cubic: with less, one run differs from the next several times over."""

CUBIC_MOST_JITTER_NS: Final = 1_000_000
"""The most jitter for several connections of cubic."""


def configured_text(impairment: Impairment, value: Any) -> str:
    """Return an impairment's value as in an experiment file."""
    return format_duration(value) if impairment.is_duration else format_fraction(value)


def cubic_beyond(conditions: LinkConditions, *, several: bool) -> Iterator[str]:
    """Yield the figures of one direction of a link that were not validated for cubic, with ``several`` connections."""
    if 0 < conditions.impairments.loss < CUBIC_LEAST_LOSS:
        yield f"cubic, validated with loss from {format_fraction(CUBIC_LEAST_LOSS)}"
    if several and conditions.impairments.jitter_ns > CUBIC_MOST_JITTER_NS:
        yield f"cubic, validated for several connections with jitter to {format_duration(CUBIC_MOST_JITTER_NS)}"


def beyond(conditions: LinkConditions) -> Iterator[tuple[str, str]]:
    """Yield each field of one direction of a link that is outside the range, with its value and the range, as text."""
    for each in reversed(IMPAIRMENTS):
        value, most = getattr(conditions.impairments, each.field), MOST.get(each.field)
        if each.simulated and most is not None and value > most:
            text = f"{configured_text(each, value)}, validated to {configured_text(each, most)}"
            yield each.name, text
    least_ns, most_ns = LATENCIES_NS
    if conditions.impairments.loss and not least_ns <= conditions.latency_ns <= most_ns:
        span = f"{format_duration(least_ns)} to {format_duration(most_ns)}"
        yield "latency", f"{format_duration(conditions.latency_ns)}, validated with loss from {span}"
