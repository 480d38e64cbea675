"""Show the prices of ways to train beside a plan: a table, and records for scripts."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from wanbed.results.text.number_text import seconds_text, size_text, three_digits
from wanbed.runner.planner.families.families_asked import same_worth
from wanbed.runner.planner.families.family_pricing import FamilyPrice
from wanbed.runner.planner.planning import PlanningTask


def family_table(families: Sequence[FamilyPrice], task: PlanningTask) -> Table:
    """Return the table, the most tokens a second first."""
    table = Table(title="Ways to train")
    for column in (
        "family",
        "replicas",
        "sequences an iteration",
        "iteration",
        f"{task.counted}/s",
        "WAN an iteration",
    ):
        table.add_column(column, justify="left" if column in {"family", "replicas"} else "right")
    for each in sorted(families, key=lambda price: price.counted_per_s, reverse=True):
        table.add_row(
            each.family,
            each.layout,
            str(each.sequences),
            seconds_text(each.iteration_time_s),
            three_digits(each.counted_per_s),
            size_text(each.wan_bytes),
        )
    return table


def family_records(families: Sequence[FamilyPrice], task: PlanningTask) -> list[dict[str, Any]]:
    """Return the prices in plain JSON types. ``same_worth`` is whether a token teaches what one of a pipeline does."""
    records = []
    for each in families:
        record = asdict(each)
        record[f"{task.counted}_per_s"] = record.pop("counted_per_s")
        records.append({**record, "family": each.family.value, "same_worth": same_worth(each.family)})
    return records
