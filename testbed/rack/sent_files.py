"""Describe the files of a user's programs that every machine of a rack is sent, and where a machine has them."""

import io
import os
import tarfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

from wanbed.ground.errors import WanbedError


class NotSentError(WanbedError):
    """A machine has not received the files that it is to unpack; the message is one line."""


@dataclass(frozen=True)
class SentFiles:
    """Files and folders below the driver's folders ``roots``, in an uncompressed tar archive.

    A name in the archive is the number of its root, and the path below that. ``names`` are the driver's paths of all
    files and folders in it.
    """

    roots: tuple[Path, ...]
    names: frozenset[str]
    archive: bytes

    @property
    def digest(self) -> str:
        """The SHA-256 of the archive, by which machines know it."""
        return digest_of(self.archive)

    def place(self, path: str) -> str | None:
        """Return where a file or folder of the driver is below a machine's folder of sent files, None if it is not."""
        if path not in self.names:
            return None
        number, root = next((n, root) for n, root in enumerate(self.roots) if Path(path).is_relative_to(root))
        return str(PurePosixPath(str(number)) / Path(path).relative_to(root))


def digest_of(archive: bytes) -> str:
    """Return what an archive is known by."""
    return sha256(archive).hexdigest()


def unpack(archive: bytes, folder: Path) -> None:
    """Unpack an archive of ``SentFiles`` into an existing folder, outside of which nothing is written."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(folder, filter="tar")


def path_on_machine(sent: "SentFiles | None", sent_folder: str | None, path: str) -> str:
    """Return where a machine has a file or folder that the driver has at ``path``: there too, if it was not sent."""
    place = None if sent is None else sent.place(path)
    return path if place is None or sent_folder is None else os.path.join(sent_folder, place)
