"""Read which user of the machine this process is, seen from outside its user namespace."""

import os
from pathlib import Path

UNMAPPED = -1
_ID_MAP = Path("/proc/self/uid_map")


def owner_of(user_id: int, id_map: str | None = None) -> int:
    """Return the id outside this process's user namespace of its user ``user_id``; ``UNMAPPED`` if it has none.

    ``id_map`` is the text of the namespace's map, by default that of this process.
    """
    for line in (_ID_MAP.read_text() if id_map is None else id_map).splitlines():
        first, outside, count = (int(word) for word in line.split())
        if first <= user_id < first + count:
            return outside + user_id - first
    return UNMAPPED


def process_owner() -> int:
    """Return the id outside of the user that this process runs as."""
    return owner_of(os.geteuid())
