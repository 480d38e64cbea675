"""Keep the files of a lease, and find those that users' programs have written in the files that the machine was sent.

All are below the lease's own folder, whatever a driver asks for.
"""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from wanbed.ground.errors import InputError
from wanbed.testbed.rack.machine_handle import FilePiece


class LeaseFiles:
    """The files below one folder of this machine, by relative paths like ``trial/rank-3.json``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def path(self, relative: str) -> Path:
        """Return where a file is. Raise InputError for a path that leads out of the folder."""
        parts = PurePosixPath(relative)
        path = self._folder / parts
        # Also behind a link that a program has made.
        if parts.is_absolute() or ".." in parts.parts or not path.resolve().is_relative_to(self._folder):
            raise InputError(f"{relative}: leads out of the lease's folder, give a path below it")
        return path

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write files, readable by this user alone, and the folders above them."""
        for relative, content in files.items():
            self._begun(relative).write_bytes(content)

    def append(self, relative: str, content: bytes) -> None:
        """Add to a file, or begin it, readable by this user alone."""
        with self._begun(relative).open("ab") as file:
            file.write(content)

    def _begun(self, relative: str) -> Path:
        path = self.path(relative)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        return path

    def read(self, patterns: Sequence[str], known_bytes: Mapping[str, int], most_bytes: int) -> dict[str, FilePiece]:
        """Return what the regular files that match, like ``trial/rank-3.*``, have beyond the sizes that are known.

        An unknown file is there even if it is empty. All contents together have ``most_bytes`` at most: so many mean
        that there may be more.
        """
        found, left_bytes = {}, most_bytes
        # What is 0 on the one clock, on the other.
        to_monotonic_ns = time.monotonic_ns() - time.time_ns()
        for path in self._matching(patterns):
            name = str(path.relative_to(self._folder))
            known = known_bytes.get(name, -1)
            # A program may have removed it meanwhile.
            with suppress(FileNotFoundError):
                facts = path.stat()
                if facts.st_size > known:
                    with path.open("rb") as file:
                        file.seek(max(known, 0))
                        content = file.read(left_bytes)
                    left_bytes -= len(content)
                    found[name] = FilePiece(content, facts.st_mtime_ns + to_monotonic_ns)
        return found

    def remove(self, patterns: Sequence[str]) -> None:
        """Remove the regular files that match."""
        for path in self._matching(patterns):
            path.unlink(missing_ok=True)

    def _matching(self, patterns: Sequence[str]) -> list[Path]:
        found: dict[Path, None] = {}
        for pattern in patterns:
            self.path(pattern)
            matching = sorted(self._folder.glob(pattern))
            found |= dict.fromkeys(path for path in matching if path.is_file() and not path.is_symlink())
        return [*found]


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
