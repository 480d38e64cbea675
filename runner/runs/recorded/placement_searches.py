"""Report how the planner has placed the variants with ``placement: auto``, and which searches ended early."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import PipelineVariant


def search_facts(point: SweepPoint) -> dict[str, Any]:
    """Return the searches of a sweep point as an entry of the manifest; {} if no placement is ``auto``."""
    searches = {
        variant.name: {**asdict(variant.planned), "datacenters": list(variant.planned.datacenters)}
        for variant in point.variants
        if isinstance(variant, PipelineVariant) and variant.planned is not None
    }
    return {"placement_searches": searches} if searches else {}


def cut_off_lines(points: Iterable[SweepPoint]) -> list[str]:
    """Return a line for each search that ended early."""
    lines = []
    for point in points:
        at = "".join(f"{path}={value}: " for path, value in point.values.items())
        for variant in point.variants:
            planned = variant.planned if isinstance(variant, PipelineVariant) else None
            if planned is not None and planned.cut_off is not None:
                lines.append(
                    f"{at}{variant.name}: placement auto: the search was cut off {planned.cut_off}, on any "
                    "machine alike: a better placement may exist (wanbed plan searches for longer)"
                )
    return lines
