"""Say where replicas that synchronise seldom stand beside others that their tokens are not worth the same."""

from collections.abc import Iterable, Sequence

from wanbed.results.reading.summaries.headline import HeadlineRow
from wanbed.results.text.number_text import list_text


def worth_note(rows: Sequence[HeadlineRow]) -> str:
    """Return the sentence about rows of which some synchronise seldom and some do not; empty if all are alike."""
    seldom = [row.variant for row in rows if row.synchronizes_seldom]
    return worth_text(seldom) if 0 < len(seldom) < len(rows) else ""


def worth_text(seldom: Iterable[str]) -> str:
    """Return what tokens and iteration times of these variants are worth beside those of others."""
    return (
        f"A token per second of {list_text(list(dict.fromkeys(seldom)))} is not worth one of data parallelism; "
        "pipelines change nothing. Compare such variants by their losses, and by bytes, not by iteration times alone."
    )
