"""Remove what a testbed left: its processes, by the identifier they bear, and with them all it had in the kernel.

Namespaces, veth pairs and TAP devices have no name outside the testbed and no other holder than its processes, so they
go with the last of these. Nothing is ever looked up by name.
"""

import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.claims.registry import STATE_ROOT, Claim, abandoned_drafts, claims, marked_processes

_DEADLINE_S = 10.0
_EMPTY_LOOKS = 2
_LOOK_INTERVAL_S = 0.02


class CleaningError(Exception):
    """Some process of a testbed did not end; the message names it."""


@dataclass(frozen=True)
class Cleaned:
    """The record of what was removed of one testbed."""

    identifier: str
    source: str
    processes: int


def end_processes(identifier: str) -> int:
    """Kill every process of a testbed and wait until they are gone. Returns how many there were.

    Looks until two looks in a row find none: a dying process may just have started another, and one that is just being
    started shows no environment for a moment.
    """
    ended: set[int] = set()
    deadline = time.monotonic() + _DEADLINE_S
    empty_looks = 0
    while empty_looks < _EMPTY_LOOKS:
        found = marked_processes(identifier)
        if found and time.monotonic() > deadline:
            raise CleaningError(f"testbed {identifier}: processes {found} do not end, look at them with ps")
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended.update(found)
        empty_looks = 0 if found else empty_looks + 1
        time.sleep(_LOOK_INTERVAL_S)
    return len(ended)


def clean_claim(claim: Claim) -> Cleaned:
    """Remove one testbed, whoever owns it."""
    processes = end_processes(claim.record.identifier)
    claim.release()
    return Cleaned(claim.record.identifier, claim.record.source, processes)


def clean(root: Path = STATE_ROOT) -> list[Cleaned]:
    """Remove every testbed whose owner is gone; those of living owners stay as they are."""
    cleaned = [clean_claim(claim) for claim in claims(root) if not claim.record.owner_alive()]
    for draft in abandoned_drafts(root):
        shutil.rmtree(draft, ignore_errors=True)
    with suppress(OSError):
        root.rmdir()
    return cleaned
