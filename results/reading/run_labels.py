"""Give runs short names that distinguish them in one report."""

import re
from collections import defaultdict
from collections.abc import Sequence

from wanbed.results.reading.run import Run

_STAMP = re.compile(r"-([0-9]{8}T([0-9]{6}Z))-[0-9a-f]{8}")
"""The suffix of a run folder's name: the time when the run was created and the hash of its configuration."""


def run_name(run: Run) -> str:
    """Return the run's name from its manifest, or its folder's name if the manifest has none."""
    return str(run.manifest.get("name") or run.path.name)


def run_labels(runs: Sequence[Run]) -> list[str]:
    """Return a unique name for each run: the name in its manifest and, where runs share it, what distinguishes them.

    That is the engine; else the time in the folder's name, or the name of a folder that was renamed; else the run's
    position. If all runs share their name and engine, it is the time or folder name alone.
    """
    labels = [run_name(run) for run in runs]
    alike = len(set(labels)) == 1 and len({run.simulated for run in runs}) == 1
    if alike and len(set(_folders(runs))) == len(runs) > 1:
        return _folders(runs)
    for further in (_engines, _folders, _numbers):
        groups: dict[str, list[int]] = defaultdict(list)
        for position, label in enumerate(labels):
            groups[label].append(position)
        for positions in groups.values():
            suffixes = further([runs[position] for position in positions])
            if len(set(suffixes)) > 1:
                for position, suffix in zip(positions, suffixes, strict=True):
                    labels[position] = f"{labels[position]}, {suffix}"
    return labels


def _engines(runs: Sequence[Run]) -> list[str]:
    return ["simulated" if run.simulated else "emulated" for run in runs]


def _folders(runs: Sequence[Run]) -> list[str]:
    """Return the time in each folder's name, without the day if all share it; the whole name if it has no time."""
    names = [run.path.name for run in runs]
    stamps = [_STAMP.search(name) for name in names]
    one_day = len({stamp[1].partition("T")[0] for stamp in stamps if stamp}) == 1
    return [stamp[2 if one_day else 1] if stamp else name for name, stamp in zip(names, stamps, strict=True)]


def _numbers(runs: Sequence[Run]) -> list[str]:
    return [f"#{number}" for number in range(1, len(runs) + 1)]
