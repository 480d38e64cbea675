"""Write the report's tables on prefill as text and as records."""

from collections.abc import Sequence
from typing import Any

from wanbed.results.metrics import REJECTION_REASONS, TTFT_PERCENTILES
from wanbed.results.report.prefill.prefill_impact import Impact
from wanbed.results.report.prefill.prefill_service import PrefillRow
from wanbed.results.text.markdown_text import markdown_text, table_line
from wanbed.results.text.number_text import UNKNOWN, amount_text, seconds_text, three_digits

_COUNTS = (
    *("offered", "admitted", "off_loaded", "held", "rejected"),
    *(f"rejected_{reason}" for reason in REJECTION_REASONS),
    *("late", "unfinished", "was_held"),
)
_TTFTS = tuple((percent, name) for name in ("ttft", "ttft_without_kv") for percent in TTFT_PERCENTILES)


def prefill_figures(row: PrefillRow | None) -> dict[str, Any]:
    """Return exact figures by name; names begin with ``prefill_`` and contain the unit.

    All are None if there was no prefill.
    """
    figures: dict[str, Any] = {"policy": row and row.policy, "offered_per_s": row and row.offered_per_s}
    figures |= {f"{name}_requests": row and row.counts[name] for name in _COUNTS}
    percentiles = {"ttft": row.ttft_s, "ttft_without_kv": row.ttft_without_kv_s} if row else {}
    figures |= {f"{name}_p{percent}_s": row and percentiles[name][percent] for percent, name in _TTFTS}
    figures |= {
        "slo_s": row and row.slo_s,
        "deadline_overruns": row and row.deadline_overruns,
        "overrun_ns": row and row.overrun_ns,
        "pool_gpus": row and row.pool_gpus,
        "tokens_per_gpu_hour": row and row.tokens_per_gpu_hour,
        "pool_equivalent_gpus": row and row.pool_equivalent,
        "pool_equivalent_at_80_percent_gpus": row and row.pool_equivalent_at_80,
    }
    return {f"prefill_{name}": value for name, value in figures.items()}


def prefill_records(rows: Sequence[PrefillRow]) -> list[dict[str, Any]]:
    """Return one record per row, with the swept values in ``swept``."""
    return [{"swept": dict(row.values), "run": row.run, "variant": row.variant, **prefill_figures(row)} for row in rows]


def impact_records(impacts: Sequence[Impact]) -> list[dict[str, Any]]:
    """Return one record per impact, with the swept values in ``swept``."""
    records = []
    for each in impacts:
        low, high = each.interval or (None, None)
        records.append(
            {
                "swept": dict(each.values),
                "run": each.run,
                "variant": each.variant,
                "without": each.without,
                "pairs": each.pairs,
                "iteration_time_ratio": each.ratio,
                "iteration_time_ratio_low": low,
                "iteration_time_ratio_high": high,
                "verdict": each.verdict,
                "simulated": each.simulated,
            }
        )
    return records


def prefill_markdown(rows: Sequence[PrefillRow], impacts: Sequence[Impact]) -> str:
    """Return both tables, each after an empty line; "" if nothing was prefilled."""
    if not rows:
        return ""
    several = len({row.run for row in rows}) > 1
    swept = any(row.where for row in rows)
    names = [*(["sweep point"] if swept else []), "variant", *(["run"] if several else [])]

    def named(row: PrefillRow | Impact) -> list[str]:
        parts = [*([row.where] if swept else []), row.variant, *([row.run] if several else [])]
        return [markdown_text(part) for part in parts]

    ttfts = [f"TTFT p{percent}" for percent in TTFT_PERCENTILES]
    counts = ["requests/s", "admitted", "off-loaded", "unfinished", "held", "rejected", "late", "overruns"]
    worth = ["tokens per GPU-hour", "pool GPUs", "at 80 %"]
    lines = ["", *_head(names, [*counts, *ttfts, *worth])]
    for row in rows:
        reasons = ", ".join(f"{number} {reason.replace('_', ' ')}" for reason, number in row.rejections.items())
        figures = [
            _digits(row.offered_per_s),
            *(str(row.counts[name]) for name in ("admitted", "off_loaded", "unfinished", "held")),
            f"{row.counts['rejected']}{f' ({markdown_text(reasons)})' if reasons else ''}",
            str(row.counts["late"]),
            UNKNOWN if row.deadline_overruns is None else str(row.deadline_overruns),
            *(
                f"{seconds_text(row.ttft_s[percent])} ({seconds_text(row.ttft_without_kv_s[percent])})"
                for percent in TTFT_PERCENTILES
            ),
            amount_text(row.tokens_per_gpu_hour),
            *map(_digits, (row.pool_equivalent, row.pool_equivalent_at_80)),
        ]
        lines.append(table_line([*named(row), *figures]))
    lines += ["", "TTFT with KV transfer (without it), for the requests that arrived after training's warm-up."]
    if impacts:
        lines += ["", *_head(names, ["against", "pairs", "ratio of iteration times", "95 % interval", "within 0.5 %"])]
    for each in impacts:
        interval = "{:.4f} to {:.4f}".format(*each.interval) if each.interval else UNKNOWN
        figures = [markdown_text(each.without), str(each.pairs), f"{each.ratio:.4f}", interval, each.words]
        lines.append(table_line([*named(each), *figures]))
    return "\n".join(lines) + "\n"


def _head(names: Sequence[str], figures: Sequence[str]) -> list[str]:
    return [table_line([*names, *figures]), table_line([*("---" for _ in names), *("---:" for _ in figures)])]


def _digits(value: float | None) -> str:
    return UNKNOWN if value is None else three_digits(value)
