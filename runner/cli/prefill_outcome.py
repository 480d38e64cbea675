"""Show what came of prefill in the terminal: TTFT, what was admitted, and what was left unfinished."""

from collections.abc import Iterator, Sequence
from typing import Any

from wanbed.results.report.prefill.prefill_service import PrefillRow, prefill_figures
from wanbed.results.report.table import Column, Table
from wanbed.results.text.number_text import UNKNOWN, percent_text, seconds_text

MANY_UNFINISHED = 0.05
"""The largest share of the admitted requests that may be unfinished without a warning."""


def prefill_documents(rows: Sequence[PrefillRow]) -> list[dict[str, Any]]:
    """Return the exact figures of each row in plain JSON types."""
    return [
        {"sweep_point": row.point, "swept": dict(row.values), "variant": row.variant, **prefill_figures(row)}
        for row in rows
    ]


def prefill_table(rows: Sequence[PrefillRow]) -> Table | None:
    """Return a table with a line for each sweep point and variant with prefill, None without any."""
    caption = "prefill: requests that arrived after training's warm-up"
    return Table.of("prefill", "", rows, _COLUMNS, caption)


def prefill_warnings(rows: Sequence[PrefillRow]) -> Iterator[str]:
    """Yield a line that names the rows without a request, and one for those with many unfinished requests."""
    if none := [row for row in rows if not row.counts["offered"]]:
        yield (
            f"prefill: no request arrived in the {min(row.window_s for row in none):.3g} s after training's warm-up "
            f"({_named(none)}): check the unit of the trace's arrivals, give a higher rate, or more iterations"
        )
    if many := [row for row in rows if row.counts["unfinished"] > MANY_UNFINISHED * _admitted(row)]:
        yield (
            f"prefill: more than {MANY_UNFINISHED:.0%} of the admitted requests had not finished when the trial "
            f"ended, so that their TTFTs are missing and the percentiles too low ({_named(many)}): give a lower rate, "
            "or more iterations"
        )


def _named(rows: Sequence[PrefillRow]) -> str:
    return "; ".join(", ".join(filter(None, (row.where, row.variant))) for row in rows)


def _admitted(row: PrefillRow) -> int:
    """Return the number of requests that were admitted, those that were off-loaded to a pool included."""
    return row.counts["admitted"] + row.counts["off_loaded"]


def _share(part: int, whole: int) -> str:
    return f"{part} ({percent_text(part / whole) if whole else UNKNOWN})"


_COLUMNS: tuple[Column[PrefillRow], ...] = (
    Column("sweep point", lambda row: row.where, form="text"),
    Column("variant", lambda row: row.variant, form="text"),
    Column("TTFT\np50", lambda row: seconds_text(row.ttft_s[50])),
    Column("TTFT\np99", lambda row: seconds_text(row.ttft_s[99])),
    Column("requests", lambda row: str(row.counts["offered"])),
    Column("admitted", lambda row: _share(_admitted(row), row.counts["offered"])),
    Column("unfinished", lambda row: _share(row.counts["unfinished"], _admitted(row))),
)
