"""Find the fields in which the manifests of several runs differ."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wanbed.results.comparison.differences import differences
from wanbed.results.comparison.manifest_fields import flattened
from wanbed.results.comparison.pairing import pair_runs
from wanbed.results.reading.run import Run

ABSENT = "(absent)"

_DERIVED = (
    "run_id",
    "created",
    "ended",
    "config_hash",
    "complete",
    "load_average",
    "sweep_points",
    "qdiscs",
    "wan_delay_trim_ns",
    "calibration",
    "capacity_bps",
)
"""Sections that differ between any two runs, or follow from other sections."""


@dataclass(frozen=True)
class ManifestDifference:
    """One field in which the runs differ. ``values`` has one JSON text per run, ``ABSENT`` if a run lacks the field.

    ``derived`` marks a field that differs between any two runs or follows from others.
    """

    path: str
    values: tuple[str, ...]
    derived: bool


def manifest_differences(manifests: Sequence[Mapping[str, Any]]) -> list[ManifestDifference]:
    """Return the fields in which the manifests are not all equal, in the manifests' order."""
    fields = [
        {path: json.dumps(value, ensure_ascii=False, default=str) for path, value in flattened(manifest, named=True)}
        for manifest in manifests
    ]
    paths = dict.fromkeys(path for each in fields for path in each)
    return [
        ManifestDifference(path, values, path.partition(".")[0] in _DERIVED)
        for path in paths
        if len(set(values := tuple(each.get(path, ABSENT) for each in fields))) > 1
    ]


@dataclass(frozen=True)
class ReportedDifferences:
    """The differences as a report groups them.

    ``of_emulation`` are the fields that no simulation has and that are equal in all emulations. ``derived`` are the
    derived ones, ``deciding`` all others.
    """

    deciding: tuple[ManifestDifference, ...]
    of_emulation: tuple[ManifestDifference, ...]
    derived: tuple[ManifestDifference, ...]


def reported_differences(runs: Sequence[Run]) -> ReportedDifferences:
    """Return the ``manifest_differences`` of these runs in groups."""
    found = manifest_differences([run.manifest for run in runs])
    derived = tuple(each for each in found if each.derived)
    rest = [each for each in found if not each.derived]
    simulated = [run.simulated for run in runs]
    of_emulation = tuple(each for each in rest if _of_emulation(each, simulated))
    return ReportedDifferences(tuple(each for each in rest if each not in of_emulation), of_emulation, derived)


def _of_emulation(difference: ManifestDifference, simulated: Sequence[bool]) -> bool:
    emulated = {value for value, by_simulator in zip(difference.values, simulated, strict=True) if not by_simulator}
    absent = [value == ABSENT for value in difference.values]
    return absent == list(simulated) and len(emulated) == 1


def incomparable(runs: Sequence[Run]) -> list[str]:
    """Return the top-level fields whose differences from the first run forbid a comparison; empty if none."""
    first = runs[0]
    others = [run for run in runs[1:] if run.path.resolve() != first.path.resolve()]
    found = [each for other in others for each in differences(first, other, pair_runs(first, other).pairs)]
    return list(dict.fromkeys(each.field.partition(".")[0] for each in found))
