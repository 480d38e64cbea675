"""Show the prices of ways to train beside a plan: a table, and records for scripts."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from wanbed.results.report.table import Column, Table
from wanbed.results.text.number_text import seconds_text, size_text, three_digits
from wanbed.runner.planner.families.families_asked import same_worth
from wanbed.runner.planner.families.family_pricing import FamilyPrice
from wanbed.runner.planner.planning import PlanningTask


def family_table(families: Sequence[FamilyPrice], task: PlanningTask) -> Table | None:
    """Return the table, the most tokens a second first; None without families."""
    columns: list[Column[FamilyPrice]] = [
        Column("family", lambda each: each.family, form="text"),
        Column("replicas", lambda each: each.layout, form="text"),
        Column("sequences\nan iteration", lambda each: str(each.sequences)),
        Column("iteration", lambda each: seconds_text(each.iteration_time_s)),
        Column(f"{task.counted}/s", lambda each: three_digits(each.counted_per_s)),
        Column("WAN\nan iteration", lambda each: size_text(each.wan_bytes)),
    ]
    ordered = sorted(families, key=lambda price: price.counted_per_s, reverse=True)
    return Table.of("families", "Ways to train", ordered, columns, "")


def family_records(families: Sequence[FamilyPrice], task: PlanningTask) -> list[dict[str, Any]]:
    """Return the prices in plain JSON types. ``same_worth`` is whether a token teaches what one of a pipeline does."""
    records = []
    for each in families:
        record = asdict(each)
        record[f"{task.counted}_per_s"] = record.pop("counted_per_s")
        records.append({**record, "family": each.family.value, "same_worth": same_worth(each.family)})
    return records
