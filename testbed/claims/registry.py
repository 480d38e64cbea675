"""Keep the record of testbeds on this machine: a folder for each, claimed before anything else of it exists.

A testbed's folder carries its slot number, which makes its subnet its own, and a record of who owns it. It comes and
goes as a whole: before the folder has its slot, and once it gives it back, it is a draft whose name contains the owner.
So a process that is killed, at whatever moment, leaves nothing that could be taken for a living one's.

Every process that a testbed starts bears the testbed's identifier in its environment from its first instruction on, so
that what a killed run left behind is found by that identifier, whatever it was doing at the time.
"""

import json
import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ground.strict_model import InputError
from testbed.network.addressing import MAX_SLOTS

STATE_ROOT = Path("/run/wanbed")
MARKER = "WANBED_TESTBED"
_RECORD = "record.json"


@dataclass(frozen=True)
class Record:
    """The owner of a testbed. Its start time distinguishes the owner from a later process with the same number."""

    identifier: str
    slot: int
    owner_pid: int
    owner_start_ticks: int
    created: str
    source: str

    def owner_alive(self) -> bool:
        """Return whether the process that made the testbed still runs."""
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

    def release(self) -> None:
        """Remove the folder, which frees the slot. Does nothing to a slot that is another testbed's by now."""
        if _read_record(self.folder) != self.record:
            return
        draft = self.folder.with_name(self.record.draft_name)
        with suppress(FileNotFoundError):
            self.folder.rename(draft)
        shutil.rmtree(draft, ignore_errors=True)


def process_start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot.

    None if there is no such process, or it is a zombie.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, start_ticks = fields[0], int(fields[19])
    return None if state in "ZX" else start_ticks


def claim(source: str, root: Path = STATE_ROOT) -> Claim:
    """Claim a free slot for this process; ``source`` describes to people what the testbed is for.

    A folder appears under its final name with its record already in it. Raises InputError if every slot is taken.
    """
    start_ticks = process_start_ticks(os.getpid())
    assert start_ticks is not None
    created = datetime.now(UTC).isoformat(timespec="microseconds")
    record = Record(f"wb-{secrets.token_hex(6)}", 0, os.getpid(), start_ticks, created, source)
    draft = _make_draft(root, record.draft_name)
    try:
        for slot in range(1, MAX_SLOTS + 1):
            folder = root / str(slot)
            if folder.exists():
                continue
            record = replace(record, slot=slot)
            (draft / _RECORD).write_text(json.dumps(asdict(record)))
            try:
                draft.rename(folder)
            except OSError:
                continue
            return Claim(record, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    raise InputError(f"{root}: all {MAX_SLOTS} testbed slots are taken, run `wanbed clean` or end some")


def _make_draft(root: Path, name: str) -> Path:
    draft = root / name
    while True:
        root.mkdir(parents=True, exist_ok=True)
        # Whoever cleans removes the root where it is empty, perhaps just now.
        with suppress(FileNotFoundError):
            draft.mkdir()
            return draft


def _read_record(folder: Path) -> Record | None:
    try:
        return Record(**json.loads((folder / _RECORD).read_text()))
    except (FileNotFoundError, NotADirectoryError):
        return None


def claims(root: Path = STATE_ROOT) -> list[Claim]:
    """Return every testbed on record, alive or left behind."""
    folders = sorted(root.glob("[0-9]*"), key=lambda path: int(path.name)) if root.is_dir() else []
    records = ((folder, _read_record(folder)) for folder in folders)
    return [Claim(record, folder) for folder, record in records if record is not None]


def abandoned_drafts(root: Path = STATE_ROOT) -> list[Path]:
    """Return folders of claims and releases that were cut off half way; those of living processes are left out."""
    drafts = []
    for draft in root.glob(".wb-*.*.*"):
        _, owner_pid, owner_start_ticks = draft.name.rsplit(".", 2)
        if process_start_ticks(int(owner_pid)) != int(owner_start_ticks):
            drafts.append(draft)
    return drafts


def marked_processes(identifier: str) -> list[int]:
    """Return the processes that bear a testbed's identifier in their environment."""
    marker = f"{MARKER}={identifier}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if marker in environment.split(b"\0"):
                found.append(int(entry.name))
    return found
