"""Explain the figures of prefill in a few sentences."""

from collections.abc import Sequence

from wanbed.results.comparison.repeatability import IN_VIRTUAL_TIME
from wanbed.results.metrics import IDLE_CAUSES
from wanbed.results.metrics.bootstrap import CONFIDENCE, FEWEST_REPEATS
from wanbed.results.reading.summaries.headline import point_text
from wanbed.results.records.span_log import PREFILL
from wanbed.results.report.charts.gpu_time import PART_NAMES
from wanbed.results.report.gpu_time_shares import GpuTimeShares
from wanbed.results.report.prefill.prefill_impact import FEWEST_PAIRS, MARGIN, Impact
from wanbed.results.report.prefill.prefill_service import PrefillRow
from wanbed.results.text.number_text import count_text, list_text, percent_text

MAX_CAUSES_READ = 3
_MARGIN_TEXT = f"{100 * MARGIN:g} %"


def outcomes_reading(rows: Sequence[PrefillRow]) -> str:
    """Describe what became of the requests, of which there are some, and what training waited for them."""
    offered, accepted = (
        sum(row.counts[name] for row in rows for name in names) for names in (("offered",), ("admitted", "off_loaded"))
    )
    late = sum(row.counts["late"] for row in rows)
    overruns: dict[str, int] = {}
    for row in rows:
        if row.deadline_overruns is not None:
            overruns[row.variant] = overruns.get(row.variant, 0) + row.deadline_overruns
    waits = [f"{count_text(number, 'time')} with {variant}" for variant, number in overruns.items() if number]
    waited = f"had to wait for a GPU {list_text(waits)}" if waits else "never had to wait for a GPU"
    others = " and never otherwise" if 0 < len(waits) < len(overruns) else ""
    share = percent_text(accepted / offered) if offered else "none"
    return (
        f"Of {count_text(offered, 'request')} that arrived while training was measured, {share} were admitted or "
        f"off-loaded, and {late or 'none'} of these answered later than the SLO."
        + (f" Training {waited}{others}." if overruns else "")
    )


def bubbles_reading(shares: Sequence[GpuTimeShares]) -> str:
    """Describe how much of the last sweep point's bubbles is filled, and why the rest is not; "" if none is filled."""
    filled = [each for each in shares if each.parts_ns.get(PREFILL)]
    if not filled:
        return ""
    last = [each for each in filled if each.values == filled[-1].values]
    several = len({each.run for each in last}) > 1
    sentences = []
    for each in last:
        name = f"{each.variant} in {each.run}" if several else each.variant
        left_ns = each.bubbles_ns - each.parts_ns[PREFILL]
        share = percent_text(each.parts_ns[PREFILL] / each.bubbles_ns)
        sentence = f"{name} filled {share} of its bubbles"
        causes = sorted((cause for cause in IDLE_CAUSES if each.parts_ns[cause]), key=lambda own: -each.parts_ns[own])
        if left_ns:
            why = [
                f"{percent_text(each.parts_ns[cause] / left_ns)} {PART_NAMES[cause].removeprefix('idle: ')}"
                for cause in causes[:MAX_CAUSES_READ]
            ]
            sentence += f" (of what stayed empty, {list_text(why)})"
        sentences.append(sentence)
    where = point_text(last[0].values)
    return (f"With {where}: " if where else "") + "; ".join(sentences) + "."


def impact_reading(found: Sequence[Impact]) -> str:
    """Say how the impact on training is judged; "" if there is none to judge."""
    if not found:
        return ""
    if all(each.simulated and each.interval is None for each in found):
        return (
            f"Simulated without noise: no impact means a ratio of iteration times within {_MARGIN_TEXT} of 1. "
            "Only an emulation can show that prefill has no impact on real training."
        )
    return (
        f"No impact: the whole {100 * CONFIDENCE:.0f} % bootstrap interval of the ratio of iteration times lies within "
        f"{_MARGIN_TEXT} of 1. A pair is a repeat that both variants have; the two are run in turn. At least "
        f"{FEWEST_PAIRS} pairs are needed, and fewer than {FEWEST_REPEATS} have no interval."
        + (f" {_VIRTUAL}" if any(_in_virtual_time(each) for each in found) else "")
    )


_VIRTUAL = (
    f"In virtual time repeats differ by at most {100 * IN_VIRTUAL_TIME:g} %: a ratio that is within the margin by more "
    "than that needs no interval."
)


def _in_virtual_time(impact: Impact) -> bool:
    return impact.interval is None and bool(impact.repeatable_within)
