"""Build the report's section on prefill: its rows as the page groups them, and their reading in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from results.comparison.repeatability import IN_VIRTUAL_TIME
from results.metrics import IDLE_CAUSES
from results.metrics.bootstrap import CONFIDENCE, FEWEST_REPEATS
from results.reading.headline import point_text
from results.reading.run import Run
from results.records.span_log import PREFILL
from results.report.charts.gpu_time import PART_NAMES
from results.report.gpu_time_shares import GpuTimeShares
from results.report.prefill.prefill_impact import FEWEST_PAIRS, MARGIN, Impact, impacts
from results.report.prefill.prefill_service import PrefillRow, prefill_rows
from results.text.number_text import count_text, list_text, percent_text

MAX_CAUSES_READ = 3
_MARGIN_TEXT = f"{100 * MARGIN:g} %"


@dataclass(frozen=True)
class PrefillSection:
    """The contents of the section; ``groups`` and ``impacts`` are by swept values, in order of appearance."""

    rows: Sequence[PrefillRow]
    groups: Sequence[tuple[str, Sequence[PrefillRow]]]
    impacts: Sequence[tuple[str, Sequence[Impact]]]
    several_runs: bool
    outcomes: str
    bubbles: str
    impact: str


def prefill_of(runs: Mapping[str, Run]) -> tuple[list[PrefillRow], list[Impact]]:
    """Return all rows and impacts of runs by their label."""
    rows = [row for label, run in runs.items() for row in prefill_rows(run, label)]
    return rows, [impact for label, run in runs.items() for impact in impacts(run, label)]


def prefill_section(
    rows: Sequence[PrefillRow], found: Sequence[Impact], shares: Sequence[GpuTimeShares]
) -> PrefillSection | None:
    """Return the section; None where nothing was prefilled. ``shares`` are those of one sweep point at least."""
    if not rows:
        return None
    groups: dict[str, list[PrefillRow]] = {}
    for row in rows:
        groups.setdefault(row.where, []).append(row)
    grouped: dict[str, list[Impact]] = {}
    for impact in found:
        grouped.setdefault(impact.where, []).append(impact)
    return PrefillSection(
        rows=rows,
        groups=list(groups.items()),
        impacts=list(grouped.items()),
        several_runs=len({row.run for row in rows}) > 1,
        outcomes=_outcomes(rows),
        bubbles=bubbles_reading(shares),
        impact=_impact_reading(found),
    )


def _outcomes(rows: Sequence[PrefillRow]) -> str:
    offered, taken = (
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
    share = percent_text(taken / offered) if offered else "none"
    return (
        f"Of {count_text(offered, 'request')} that arrived while training was measured, {share} were taken in, and "
        f"{late or 'none'} of these answered later than the SLO." + (f" Training {waited}{others}." if overruns else "")
    )


def bubbles_reading(shares: Sequence[GpuTimeShares]) -> str:
    """Describe how full the bubbles of the last sweep point are, and what keeps the rest empty; "" if none are."""
    filled = [each for each in shares if each.parts_ns[PREFILL]]
    if not filled:
        return ""
    last = [each for each in filled if each.values == filled[-1].values]
    several = len({each.run for each in last}) > 1
    sentences = []
    for each in last:
        name = f"{each.variant} in {each.run}" if several else each.variant
        left_ns = each.bubbles_ns - each.parts_ns[PREFILL]
        share = percent_text(each.parts_ns[PREFILL] / each.bubbles_ns)
        sentence = f"{name} filled {share} of the time that training left"
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


def _impact_reading(found: Sequence[Impact]) -> str:
    if not found:
        return ""
    if all(each.simulated for each in found):
        return (
            f"Simulated, and so exact: no impact is a ratio of iteration times within {_MARGIN_TEXT} of 1. "
            "Only an emulation can show that real training notices nothing."
        )
    return (
        f"No impact: the whole {100 * CONFIDENCE:.0f} % bootstrap interval of the ratio of iteration times lies within "
        f"{_MARGIN_TEXT} of 1. The repeats of both are those that both have, run in turn; at least "
        f"{FEWEST_PAIRS} pairs are asked for, and fewer than {FEWEST_REPEATS} have no interval."
        + (f" {_VIRTUAL}" if any(_in_virtual_time(each) for each in found) else "")
    )


_VIRTUAL = (
    f"In virtual time, which repeats within {100 * IN_VIRTUAL_TIME:g} %, a ratio that stays within the margin by "
    "that much needs none."
)


def _in_virtual_time(impact: Impact) -> bool:
    return impact.interval is None and bool(impact.repeatable_within)
