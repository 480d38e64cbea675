"""Identify a trial: one run of one variant at one sweep point."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class TrialId(NamedTuple):
    """Identify a trial within its run; these are also the first columns of all its tables.

    ``point`` is the sweep point's index and ``repeat`` counts repetitions, both from 0.
    """

    point: int
    variant: str
    repeat: int

    def __str__(self) -> str:
        return f"sweep point {self.point}, {' '.join(self.variant.split())}, repeat {self.repeat}"


def planned_trials(manifest: Mapping[str, Any]) -> list[TrialId]:
    """Return every trial of a run's whole sweep; none if the manifest does not record which there are."""
    points = [entry["index"] for entry in manifest.get("sweep_points") or ()]
    variants = [entry["name"] for entry in manifest.get("variants") or ()]
    # A manifest may have the number of repeats in its experiment alone.
    repeats = manifest.get("repeats") or (manifest.get("experiment") or {}).get("repeats") or 1
    return [TrialId(point, variant, repeat) for point in points for variant in variants for repeat in range(repeats)]
