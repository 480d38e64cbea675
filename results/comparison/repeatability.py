"""Look up how much two runs of the same experiment may differ, if that is known without repeats."""

from collections.abc import Mapping
from typing import Any

from wanbed.ground.impairments import IMPAIRMENTS
from wanbed.results.reading.run import Run

IN_VIRTUAL_TIME = 0.001
"""The largest relative difference of two runs in virtual time, which ``tests/system/virtual_time/test_virtual_time.py``
checks."""


def repeatable_within(run: Run, point: int) -> float | None:
    """Return the largest relative difference of another run of that sweep point; None if only repeats can show it.

    A simulation is deterministic: 0. A run in virtual time nearly is, unless packets are lost or delayed at random.
    Where compute times are drawn, only repeats show what the draws do.
    """
    if run.drawn(point):
        return None
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
