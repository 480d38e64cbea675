"""Return by how much two runs of one thing may differ, where that is known without repeating it."""

from collections.abc import Mapping
from typing import Any

from ground.impairments import IMPAIRMENTS
from results.reading.run import Run

IN_VIRTUAL_TIME = 0.001
"""Two runs in virtual time lie no further apart, which ``tests/system/test_virtual_time.py`` holds them to."""


def repeatable_within(run: Run, point: int) -> float | None:
    """Return by which fraction another run of that sweep point may differ; None if only repeats can show it.

    A simulation gives the same every time. So, nearly, does virtual time, unless packets are lost or delayed at random.
    """
    if run.simulated:
        return 0.0
    if run.manifest.get("clock") != "virtual" or _random(run.manifest, point):
        return None
    return IN_VIRTUAL_TIME


def _random(manifest: Mapping[str, Any], point: int) -> bool:
    """Return whether any link of the sweep point delays or drops packets at random, or the manifest lists no links."""
    entry: Mapping[str, Any] = next(
        (each for each in manifest.get("sweep_points") or () if each.get("index") == point), {}
    )
    links = entry.get("wan")
    return links is None or any(link.get(each.field) for link in links for each in IMPAIRMENTS)
