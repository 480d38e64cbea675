"""Find compute back ends by name: those of this package, and those of other installed packages.

A package adds one with an entry point in the group ``wanbed.compute``, of a subclass of ``ComputeBackend``. Names are
looked up where an experiment is read; a rank is given the class's path.
"""

import sys
from functools import cache
from importlib.metadata import entry_points

ENTRY_POINT_GROUP = "wanbed.compute"

_OWN = {
    "replay": "workloads.compute.backends.replay_backend:ReplayBackend",
    "torch": "workloads.compute.backends.torch_backend:TorchBackend",
}


def backend_names() -> tuple[str, ...]:
    """Return every name there is a back end for, sorted."""
    return tuple(sorted(_paths(tuple(sys.path))))


def backend_class_path(name: str) -> str:
    """Return ``"package.module:Class"`` of the back end of that name.

    Raises ValueError for a name that none or several packages have.
    """
    paths = _paths(tuple(sys.path)).get(name, set())
    if len(paths) > 1:
        raise ValueError(f"several packages bring a back end {name!r} ({', '.join(sorted(paths))}), keep one")
    if not paths:
        *others, last = map(repr, backend_names())
        raise ValueError(f"input should be {', '.join(others)} or {last}")
    return next(iter(paths))


@cache
def _paths(_searched: tuple[str, ...]) -> dict[str, set[str]]:
    """Return the paths that each name has. Cached: a search takes a millisecond, for every cell."""
    found = {name: {path} for name, path in _OWN.items()}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        found.setdefault(entry.name, set()).add(entry.value)
    return found
