"""Find what installed packages add to wanbed by entry points."""

import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points


def installed(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group in all packages on the path."""
    return _installed(group, tuple(sys.path))


@cache
def _installed(group: str, _searched: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group. Cached: a search takes milliseconds, at every sweep point."""
    return tuple(entry_points(group=group))
