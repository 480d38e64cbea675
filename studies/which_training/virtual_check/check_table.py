"""Write what was checked as a table: virtual time beside simulation, with the kinds of misses that are known."""

from collections.abc import Sequence
from statistics import median

from studies.which_training.virtual_check.checking import Checked
from wanbed.results.text import count_text, list_text, seconds_text, table_line

_AGREES = 0.05
"""The error that the simulator may have where no miss is known."""


def check_text(found: Sequence[Checked]) -> str:
    """Return the table, and a line that says how many settings agree."""
    within = sum(abs(each.miss) <= _AGREES for each in found)
    worst = max(found, key=lambda each: abs(each.miss))
    middle = median(abs(each.miss) for each in found)
    lines = [
        table_line(["one-way latency, rate", "method", "virtual time", "simulated", "off by", "known kinds of misses"]),
        table_line(["---"] * 6),
        *(table_line(_cells(each)) for each in found),
    ]
    return "\n".join(lines) + (
        f"\n\nOf {count_text(len(found), 'setting')} {within} agree within {_AGREES:.0%}; the median is off by "
        f"{middle:.1%}, the worst by {worst.miss:+.1%} ({worst.method}, {worst.wan.latency_ms} ms)."
    )


def _cells(each: Checked) -> list[str]:
    return [
        f"{each.wan.latency_ms} ms, {each.wan.rate_gbps_text} Gbit/s",
        f"{each.method}, {each.label}",
        seconds_text(each.measured_s),
        seconds_text(each.simulated_s),
        f"{each.miss:+.1%}",
        list_text(list(each.known_misses)) or "none",
    ]
