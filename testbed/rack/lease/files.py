"""Keep the files of a lease: all are below its own folder, whatever a driver asks for."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from ground.strict_model import InputError


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
            path = self.path(relative)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_bytes(content)

    def take(self, patterns: Sequence[str]) -> dict[str, bytes]:
        """Return the regular files that match, like ``trial/rank-3.*``, and remove them."""
        taken = {}
        for pattern in patterns:
            self.path(pattern)
            for path in sorted(self._folder.glob(pattern)):
                if path.is_file() and not path.is_symlink():
                    taken[str(path.relative_to(self._folder))] = path.read_bytes()
                    path.unlink()
        return taken
