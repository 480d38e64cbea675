"""Keep the files of a lease: all are below its own folder, whatever a driver asks for."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from wanbed.ground.strict_model import InputError
from wanbed.testbed.rack.orders import FilePiece


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
