"""Give runs short names that distinguish them in one report."""

import re
from collections import defaultdict
from collections.abc import Sequence

from results.reading.run import Run

_STAMP = re.compile(r"-([0-9]{8}T([0-9]{6}Z))-[0-9a-f]{8}")
"""What the runner puts after a name: when the run was created, and of which configuration."""


def run_name(run: Run) -> str:
    """Return the manifest's name for the run, else its folder's name."""
    return str(run.manifest.get("name") or run.path.name)


def run_labels(runs: Sequence[Run]) -> list[str]:
    """Return a name for each run, no two the same: the manifest's and, where two share that, what differs.

    That is the engine; else the time in the folder's name, as it stands there, or the name of a folder that was
    renamed; else their order. Where all share their name and engine, the time or folder alone.
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
            text = further([runs[position] for position in positions])
            if len(set(text)) > 1:
                for position, more in zip(positions, text, strict=True):
                    labels[position] = f"{labels[position]}, {more}"
    return labels


def _engines(runs: Sequence[Run]) -> list[str]:
    return ["simulated" if run.simulated else "emulated" for run in runs]


def _folders(runs: Sequence[Run]) -> list[str]:
    """Return the times in the folders' names, without the day if all share it; the name of a folder without a time."""
    names = [run.path.name for run in runs]
    stamps = [_STAMP.search(name) for name in names]
    one_day = len({stamp[1].partition("T")[0] for stamp in stamps if stamp}) == 1
    return [stamp[2 if one_day else 1] if stamp else name for name, stamp in zip(names, stamps, strict=True)]


def _numbers(runs: Sequence[Run]) -> list[str]:
    return [f"#{number}" for number in range(1, len(runs) + 1)]
