"""Find compute back ends by name: those of this package, and those of other installed packages.

A package adds a back end, a subclass of ``ComputeBackend``, by an entry point in the group ``wanbed.compute``. Names
are looked up when an experiment is read. A rank gets the path of the class.
"""

from wanbed.ground.entry_points import installed
from wanbed.ground.errors import did_you_mean, shown

ENTRY_POINT_GROUP = "wanbed.compute"

_OWN = {
    "replay": "wanbed.workloads.compute.backends.replay_backend:ReplayBackend",
    "torch": "wanbed.workloads.compute.backends.torch_backend:TorchBackend",
}


def backend_names() -> tuple[str, ...]:
    """Return the names of all back ends, sorted."""
    return tuple(sorted(_paths()))


def backend_class_path(name: str) -> str:
    """Return ``"package.module:Class"`` of the back end of that name.

    Raise ValueError if no package or several have that name.
    """
    paths = _paths().get(name, set())
    if len(paths) > 1:
        raise ValueError(f"several packages bring a back end {name!r} ({', '.join(sorted(paths))}), keep one")
    if not paths:
        names = backend_names()
        *others, last = map(repr, names)
        remedy = did_you_mean(name, names, f"give {', '.join(others)} or {last}")
        raise ValueError(f"{shown(name)} is not known: {remedy}")
    return next(iter(paths))


def _paths() -> dict[str, set[str]]:
    """Return the class paths of each name."""
    found = {name: {path} for name, path in _OWN.items()}
    for entry in installed(ENTRY_POINT_GROUP):
        found.setdefault(entry.name, set()).add(entry.value)
    return found
