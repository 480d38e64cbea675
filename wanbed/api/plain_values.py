"""Bring what is written in Python to the plain values that an experiment file holds."""

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np

from wanbed.ground.strict_model import InputError
from wanbed.workloads.schedules.schedule import Schedule

_MAX_DEPTH = 50


def plain(value: object, path: tuple[str, ...] = ()) -> Any:
    """Return ``value`` in dictionaries, lists, text and numbers; a schedule class becomes its path as text.

    Numbers and arrays of numpy become Python's. Anything else stays for the checks of the experiment to refuse.
    ``path`` is where the value stands. Raise InputError for a class that has no path, and for endless nesting.
    """
    if len(path) > _MAX_DEPTH:
        raise InputError(f"{'.'.join(path[:3])}: it is nested too deeply")
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist(), path)
    if isinstance(value, Mapping):
        return {key: plain(below, (*path, str(key))) for key, below in value.items()}
    if isinstance(value, str | PathLike):
        return str(fspath(value))
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(below, (*path, str(position))) for position, below in enumerate(value)]
    if isinstance(value, type) and issubclass(value, Schedule):
        return _class_path(value, ".".join(path))
    return value


def _class_path(kind: type[Schedule], field: str) -> str:
    if "." in kind.__qualname__:
        raise InputError(f"{field}: {kind.__qualname__} cannot be imported: define it at the top of a module")
    return f"{kind.__module__}:{kind.__qualname__}"
