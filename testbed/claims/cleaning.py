"""Find and remove what testbeds left behind, by killing their processes.

Namespaces, veth pairs and TAP devices are unnamed outside the testbed and held only by its processes. The kernel
removes them with the last such process, so nothing is looked up by name.
"""

import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wanbed.ground.errors import WanbedError
from wanbed.testbed.claims.processes import MARKER, SUPERVISED, marked_processes, namespace_count, processes_of
from wanbed.testbed.claims.registry import STATE_ROOT, Claim, abandoned_drafts, claims
from wanbed.testbed.rights import in_user_namespace

_DEADLINE_S = 10.0
_EMPTY_LOOKS = 2
_LOOK_INTERVAL_S = 0.02


class CleaningError(WanbedError):
    """A process of a testbed did not end; the message gives its PID."""


@dataclass(frozen=True)
class Cleaned:
    """The remains of one testbed that were removed; ``processes`` is the number of processes killed."""

    identifier: str
    source: str
    processes: int


def end_processes(identifier: str, variable: str = MARKER) -> int:
    """Kill every process of a testbed, wait until they are gone, and return how many there were.

    Search until two searches in a row find none: a dying process may have started another one, and a process that is
    just starting shows no environment for a moment. Raise CleaningError if processes remain after 10 s.
    """
    ended: set[int] = set()
    deadline = time.monotonic() + _DEADLINE_S
    empty_looks = 0
    while empty_looks < _EMPTY_LOOKS:
        found = processes_of(identifier, variable)
        if found and time.monotonic() > deadline:
            raise CleaningError(f"testbed {identifier}: processes {found} do not end, look at them with ps")
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended.update(found)
        empty_looks = 0 if found else empty_looks + 1
        time.sleep(_LOOK_INTERVAL_S)
    return len(ended)


@dataclass(frozen=True)
class Leftover:
    """The remains of a testbed whose owner was killed."""

    identifier: str
    source: str
    processes: int
    namespaces: int


def leftovers(root: Path = STATE_ROOT) -> list[Leftover]:
    """Return what killed owners left, except what a supervisor is ending at this moment."""
    left = []
    for record in (claim.record for claim in claims(root)):
        if not record.owner_alive() and not marked_processes(record.identifier, SUPERVISED):
            processes = len(processes_of(record.identifier))
            left.append(Leftover(record.identifier, record.source, processes, namespace_count(record.identifier)))
    return left


def clean_claim(claim: Claim) -> Cleaned:
    """Remove one testbed, even if its owner is alive."""
    processes = end_processes(claim.record.identifier)
    claim.release()
    return Cleaned(claim.record.identifier, claim.record.source, processes)


def clean(root: Path = STATE_ROOT) -> list[Cleaned]:
    """Remove every testbed whose owner process is gone, and return what was removed."""
    cleaned = [clean_claim(claim) for claim in claims(root) if not claim.record.owner_alive()]
    for draft in abandoned_drafts(root):
        shutil.rmtree(draft, ignore_errors=True)
    with suppress(OSError):
        root.rmdir()
    return cleaned


_LISTED = 3


def leftovers_text() -> str | None:
    """Return what killed runs left, with the remedy, in one line; None if nothing.

    None inside a user namespace too, where the processes of another one cannot be seen: ask before entering it.
    """
    found = [] if in_user_namespace() else leftovers()
    if not found:
        return None
    listed = [f"{each.identifier} of {each.source} ({_extent(each)})" for each in found[:_LISTED]]
    listed += [f"and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
    return f"killed runs left {', '.join(listed)}: `wanbed clean` removes what they left"


def _extent(left: Leftover) -> str:
    if not left.processes:
        return "its record"
    return f"{left.processes} processes, {left.namespaces} network namespaces"
