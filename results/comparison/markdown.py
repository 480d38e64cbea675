"""Write a comparison as GitHub-flavoured Markdown, for example for a workflow's summary."""

from collections.abc import Iterable, Sequence

from wanbed.results.comparison.comparison import Comparison, Verdict
from wanbed.results.comparison.differences import Difference
from wanbed.results.comparison.judgement import ITERATION_TIME, Judgement, Metric, PairVerdict
from wanbed.results.comparison.pairing import Pair
from wanbed.results.text import UNKNOWN, count_text, percent_text, three_digits

MAX_TEXT = 80
"""The most characters of a value that are shown; a compute profile with many stages has pages of them."""

WORDS: dict[PairVerdict, str] = {
    "same": "same",
    "regressed": "REGRESSED",
    "improved": "improved",
    "unclear": "UNCLEAR",
    "no_data": "NO DATA",
}

_BOUND_HEADINGS = ("A / its lower bound", "B / its lower bound")

_COST_HEADINGS = ("A: USD a million tokens", "B: USD a million tokens")

_SPECIAL = frozenset('\\`*_[]<>#|~&:@"$')


def escaped(text: str) -> str:
    """Escape text as Markdown that shows it literally, on one line, without characters that change text direction."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return "".join(f"&#{ord(character)};" if character in _SPECIAL else character for character in printable)


def shortened(text: str) -> str:
    """Shorten a text to at most ``MAX_TEXT`` characters, leaving out its middle."""
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[: MAX_TEXT // 2]}...{text[3 - MAX_TEXT // 2 :]}"


def verdict_line(comparison: Comparison) -> str:
    """Return the verdict of all pairs in one line."""
    verdicts = [judgement.verdict for judgement in comparison.judgements]
    of_all = f"of {count_text(len(verdicts), 'pair')}"
    unclear = f"; {comparison.unclear} {of_all} UNCLEAR, and not counted as regressed" if comparison.unclear else ""
    unjudged = verdicts.count("no_data")
    lines: dict[Verdict, str] = {
        "not_comparable": "not comparable: "
        + ", ".join(dict.fromkeys(each.field for each in comparison.check.refused)),
        "regressed": f"REGRESSED: {verdicts.count('regressed')} {of_all}{unclear}",
        "no_data": f"NO DATA: {unjudged} {of_all} could not be judged{unclear}"
        if verdicts
        else "NO DATA: no pair in common",
        "improved": f"improved: {verdicts.count('improved')} {of_all}, none regressed{unclear}",
        "same": f"not regressed: none {of_all}{unclear}" if unclear else f"same: {count_text(len(verdicts), 'pair')}",
    }
    return lines[comparison.verdict]


def markdown(comparison: Comparison) -> str:
    """Write the verdict, one row per pair, the differences, and the caveats. All names are escaped."""
    checked = comparison.check
    parts = [
        f"### wanbed compare: {escaped(verdict_line(comparison))}",
        f"A (baseline): {escaped(checked.a.path.name)}<br>B: {escaped(checked.b.path.name)}<br>"
        f"{_metric_text(comparison)}margin: {percent_text(comparison.margin)}, confidence: 95 %",
    ]
    if comparison.notes:
        parts.append(escaped(" ".join(comparison.notes)))
    if comparison.judgements:
        headings = ["sweep point", "variant", "A", "B", "B / A", "95 % interval", "verdict", ""]
        rows = [list(pair_row(judgement, comparison.metric)) for judgement in comparison.judgements]
        headings += further_headings(comparison)
        for row, judgement in zip(rows, comparison.judgements, strict=True):
            row.extend(further_texts(comparison, judgement))
        parts.append(_table(headings, rows))
    for title, found in (
        ("Differences that forbid a comparison (`--allow FIELD` accepts one)", checked.refused),
        ("Differences that were allowed", checked.allowed),
        ("Under test", checked.under_test),
    ):
        if found:
            parts += [f"**{title}**", _table(("field", "A", "B", "where"), map(difference_row, found))]
    if checked.caveats:
        parts.append("**Caveats**\n\n" + "\n".join(f"- {escaped(each)}" for each in checked.caveats))
    return "\n\n".join(parts) + "\n"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *([escaped(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _metric_text(comparison: Comparison) -> str:
    return f"metric: {comparison.metric.name}<br>" if comparison.metric.of_losses else ""


def pair_row(judgement: Judgement, metric: Metric = ITERATION_TIME) -> tuple[str, ...]:
    """Return sweep point, variant, A, B, ratio, interval, verdict and its reading, as text."""
    pair = judgement.pair
    return (
        pair.point_text,
        pair.variant_text,
        metric.text(pair.a.median_s),
        metric.text(pair.b.median_s),
        "n/a" if judgement.ratio is None else f"{judgement.ratio:.3f}",
        _interval_text(judgement, metric),
        WORDS[judgement.verdict] + _saturated_text(pair),
        judgement.reading,
    )


def further_headings(comparison: Comparison) -> tuple[str, ...]:
    """Return the headings of ``further_texts``: of bounds and of costs, as far as those of any side are known."""
    bounds = _BOUND_HEADINGS if _has_bounds(comparison) else ()
    return (*bounds, *(_COST_HEADINGS if _has_costs(comparison) else ()))


def further_texts(comparison: Comparison, judgement: Judgement) -> tuple[str, ...]:
    """Return how far A and B are above their lower bounds, and what their tokens cost, as text."""
    sides = judgement.pair.a, judgement.pair.b
    bounds = [side.bound_text for side in sides if _has_bounds(comparison)]
    costs = [_cost_text(side.usd_per_million_tokens) for side in sides if _has_costs(comparison)]
    return (*bounds, *costs)


def _has_bounds(comparison: Comparison) -> bool:
    return any(side.bound is not None for each in comparison.judgements for side in (each.pair.a, each.pair.b))


def _has_costs(comparison: Comparison) -> bool:
    return any(each.pair.priced for each in comparison.judgements)


def _cost_text(usd: float | None) -> str:
    return UNKNOWN if usd is None else three_digits(usd)


def _interval_text(judgement: Judgement, metric: Metric) -> str:
    """Return the interval, or the reason why there is none."""
    pair, interval = judgement.pair, judgement.interval
    if pair.a.exact and pair.b.exact:
        return "no noise"
    if interval is not None:
        return f"{interval[0]:.3f} to {interval[1]:.3f}"
    fewest = min(side.repeats for side in (pair.a, pair.b) if not side.exact)
    return f"none, {count_text(fewest, metric.draw)}"


def _saturated_text(pair: Pair) -> str:
    """Name the sides whose machine was saturated; "" if none was."""
    sides = [name for name, side in (("A", pair.a), ("B", pair.b)) if side.saturated]
    return f", {' and '.join(sides)} saturated" if sides else ""


def difference_row(difference: Difference) -> tuple[str, ...]:
    """Return field, A's value, B's value, and where, as text."""
    return difference.field, shortened(difference.a), shortened(difference.b), shortened(difference.where)
