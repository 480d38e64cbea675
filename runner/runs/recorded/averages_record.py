"""Record of which parts the averages of a trial are, where replicas synchronise over a star."""

from collections.abc import Collection
from typing import Any


def averages_facts(sums: Collection[tuple[int, int]], dropped: int) -> dict[str, Any]:
    """Return a trial's entry on averages, empty where there are none.

    ``sums`` has for each how many parts it is of, and how many of these were meant for an earlier one. ``dropped`` is
    how many parts came too late for any.
    """
    if not sums:
        return {}
    parts = [each for each, _ in sums]
    return {
        "averages": {
            "sums": len(parts),
            "fewest_parts": min(parts),
            "most_parts": max(parts),
            "late_parts": sum(late for _, late in sums),
            "dropped_parts": dropped,
        }
    }
