"""Find what users' programs have written in the copy of files that a machine was sent."""

import os
from contextlib import suppress
from pathlib import Path

from wanbed.testbed.rack.machine.lease_files import LeaseFiles

_CACHE, _ENVIRONMENT = "__pycache__", "pyvenv.cfg"
"""A folder that Python writes by itself, and what the folder of a virtual environment has."""

_Seen = tuple[int, int, int]
"""The size of a file, when it was written, and its inode, which is another one where a file has taken its place."""


class WrittenFiles:
    """The regular files below a folder that are new or changed since the last look, the first of which is made here.

    What Python caches and virtual environments are no work of a program's, and links are not followed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._paths = LeaseFiles(folder)
        self._seen = self._look()

    def changed(self) -> dict[str, int]:
        """Return the sizes of the files that are new or changed since the last call, by their relative paths."""
        before, self._seen = self._seen, self._look()
        return {name: seen[0] for name, seen in sorted(self._seen.items()) if before.get(name) != seen}

    def read(self, name: str, offset: int, most_bytes: int) -> bytes:
        """Return a part of a file, b"" behind its end or where it has gone. Raise InputError for a path outside."""
        path = self._paths.path(name)
        with suppress(FileNotFoundError, IsADirectoryError), path.open("rb") as file:
            file.seek(offset)
            return file.read(most_bytes)
        return b""

    def _look(self) -> dict[str, _Seen]:
        found: dict[str, _Seen] = {}
        for place, folders, files in os.walk(self._folder):
            here = Path(place)
            folders[:] = [name for name in folders if name != _CACHE and not (here / name / _ENVIRONMENT).exists()]
            for name in files:
                path = here / name
                # A program may have removed it meanwhile.
                with suppress(FileNotFoundError):
                    if path.is_file() and not path.is_symlink():
                        facts = path.lstat()
                        found[str(path.relative_to(self._folder))] = facts.st_size, facts.st_mtime_ns, facts.st_ino
        return found
