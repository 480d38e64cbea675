"""Record the testbeds on this machine: one folder each, claimed before anything else of the testbed is created.

The folder's name is the testbed's slot number, which determines its subnet. The folder contains a record of the owner
process. It appears and disappears atomically: before the claim and after the release it is a draft, whose name contains
the owner. So a process killed at any moment leaves nothing that looks like the testbed of a living process.

Every process that a testbed starts has the testbed's identifier in its environment, see
``wanbed.testbed.claims.processes``.
"""

import json
import os
import secrets
import shutil
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import gettempdir

from wanbed.ground.errors import InputError
from wanbed.testbed.claims.processes import process_start_ticks
from wanbed.testbed.network.addressing import MAX_SLOTS
from wanbed.testbed.rights import process_owner


def state_root(owner: int) -> Path:
    """Return the folder of a user's testbeds; ``owner`` is the user's id outside every user namespace.

    The folder of a user other than root outlives the user's session, as a run with nohup does: /run/user does not.
    """
    return Path("/run/wanbed") if owner == 0 else Path(f"/tmp/wanbed-{owner}")  # noqa: S108 - its owner is checked


STATE_ROOT = state_root(process_owner())
"""The folder of this user's testbeds, the same inside and outside the user namespaces of this user."""
_RECORD = "record.json"
_DISK = "disk"
"""A link in a testbed's folder to its folder on a disk, if it has one."""


@dataclass(frozen=True)
class Record:
    """A testbed's identifier, slot and owner. The owner's start time tells it from a later process of the same PID."""

    identifier: str
    slot: int
    owner_pid: int
    owner_start_ticks: int
    created: str
    source: str

    def owner_alive(self) -> bool:
        """Return whether the process that created the testbed still runs."""
        return process_start_ticks(self.owner_pid) == self.owner_start_ticks

    @property
    def draft_name(self) -> str:
        """Name of the testbed's folder while it has no slot."""
        return f".{self.identifier}.{self.owner_pid}.{self.owner_start_ticks}"


@dataclass(frozen=True)
class Claim:
    """A testbed's record and its folder."""

    record: Record
    folder: Path

    def make_disk_folder(self) -> Path:
        """Make a folder among this machine's temporary ones, which is removed with the claim.

        The claim's own folder may be in memory, where programs often may not be executed.
        """
        folder = Path(gettempdir()).resolve() / self.record.identifier
        # First the link: a process that is killed between the two leaves nothing.
        (self.folder / _DISK).symlink_to(folder)
        folder.mkdir(mode=0o700)
        return folder

    def release(self) -> None:
        """Remove its folders, which frees the slot. Do nothing if another testbed has taken the slot since."""
        if _read_record(self.folder) != self.record:
            return
        with suppress(FileNotFoundError):
            shutil.rmtree((self.folder / _DISK).readlink(), ignore_errors=True)
        draft = self.folder.with_name(self.record.draft_name)
        with suppress(FileNotFoundError):
            self.folder.rename(draft)
        shutil.rmtree(draft, ignore_errors=True)


def claim(source: str, root: Path = STATE_ROOT, *, slot: int | None = None) -> Claim:
    """Claim a free slot for this process, or just ``slot``; ``source`` describes the testbed's purpose to people.

    The folder appears under its final name with its record already in it. Raise InputError if every slot is taken, or
    ``slot`` is.
    """
    start_ticks = process_start_ticks(os.getpid())
    assert start_ticks is not None
    created = datetime.now(UTC).isoformat(timespec="microseconds")
    record = Record(f"wb-{secrets.token_hex(6)}", 0, os.getpid(), start_ticks, created, source)
    draft = _make_draft(root, record.draft_name)
    try:
        for number in range(1, MAX_SLOTS + 1) if slot is None else (slot,):
            folder = root / str(number)
            if folder.exists():
                continue
            record = replace(record, slot=number)
            (draft / _RECORD).write_text(json.dumps(asdict(record)))
            try:
                draft.rename(folder)
            except OSError:
                continue
            return Claim(record, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    if slot is not None:
        raise InputError(f"{root / str(slot)}: this testbed slot was taken just now, try again")
    raise InputError(f"{root}: all {MAX_SLOTS} testbed slots are taken, run `wanbed clean` or end some")


def _make_draft(root: Path, name: str) -> Path:
    draft = root / name
    while True:
        # Whatever the umask is: who may write there names folders that `wanbed clean` removes.
        root.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not _is_own(root):
            raise InputError(
                f"{root}: belongs to somebody else, or anybody may write there, and would record these testbeds: let "
                "root or its owner remove it"
            )
        # A concurrent cleaning removes the root if it is empty, possibly between these two lines.
        with suppress(FileNotFoundError):
            draft.mkdir(mode=0o755)
            return draft


def _is_own(root: Path) -> bool:
    """Return whether only this user writes to the folder of testbeds: anybody may make folders in /tmp."""
    try:
        found = root.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & stat.S_IWOTH


def _read_record(folder: Path) -> Record | None:
    try:
        return Record(**json.loads((folder / _RECORD).read_text()))
    except (FileNotFoundError, NotADirectoryError):
        return None


def claims(root: Path = STATE_ROOT) -> list[Claim]:
    """Return every testbed on record, whether its owner is alive or not."""
    folders = sorted(root.glob("[0-9]*"), key=lambda path: int(path.name)) if root.is_dir() and _is_own(root) else []
    records = ((folder, _read_record(folder)) for folder in folders)
    return [Claim(record, folder) for folder, record in records if record is not None]


def abandoned_drafts(root: Path = STATE_ROOT) -> list[Path]:
    """Return the folders of interrupted claims and releases whose processes are gone."""
    drafts = []
    for draft in root.glob(".wb-*.*.*") if _is_own(root) else ():
        _, owner_pid, owner_start_ticks = draft.name.rsplit(".", 2)
        if process_start_ticks(int(owner_pid)) != int(owner_start_ticks):
            drafts.append(draft)
    return drafts
