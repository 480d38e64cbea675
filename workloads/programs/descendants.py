"""Find and kill every descendant of this process, whatever group, session or parent it has given itself.

This process becomes a subreaper: a descendant whose parent ends becomes its child and not that of process 1. So a
process has no descendants exactly when it has no children.
"""

import os
import signal
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from wanbed.workloads.prctl import prctl

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_S = 10.0
_LOOK_INTERVAL_S = 0.01


def adopt_descendants() -> None:
    """Make this process the parent of every descendant whose own parent ends. Raise OSError if the kernel refuses."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1, "PR_SET_CHILD_SUBREAPER")


def reap() -> dict[int, int]:
    """Return the wait status of each child that has ended since the last call, by its PID."""
    ended = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended[found[0]] = found[1]
    return ended


def kill_descendants() -> dict[int, int]:
    """Kill all descendants, wait until none is left, and return the wait status of those that were reaped here.

    Raise TimeoutError, naming some, if they do not end within 10 s.
    """
    ended: dict[int, int] = {}
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        found = _stop_descendants()
        for pid in found:
            _send(pid, signal.SIGKILL)
        ended.update(reap())
        if not _has_children():
            return ended
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(found)} do not end, look at them with ps")
        time.sleep(_LOOK_INTERVAL_S)


def _stop_descendants() -> set[int]:
    """Stop all descendants and return them. What is stopped starts no further ones while they are looked for."""
    stopped: set[int] = set()
    while new := _descendants() - stopped:
        for pid in new:
            _send(pid, signal.SIGSTOP)
        stopped |= new
    return stopped


def _descendants() -> set[int]:
    children = defaultdict(list)
    for entry in os.listdir("/proc"):
        # A process that ends meanwhile has no file any more.
        if entry.isdigit():
            with suppress(OSError):
                status = Path("/proc", entry, "stat").read_text(encoding="utf-8", errors="replace")
                children[int(status.rpartition(")")[2].split()[1])].append(int(entry))
    found: set[int] = set()
    ahead = [os.getpid()]
    while ahead:
        ahead = [child for pid in ahead for child in children[pid]]
        found.update(ahead)
    return found


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _send(pid: int, number: signal.Signals) -> None:
    # One of another user, or one that has just ended: the deadline reports the former.
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
