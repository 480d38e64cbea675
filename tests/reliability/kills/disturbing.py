"""Call a scene's command and disturb it as was drawn."""

import os
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.reliability.kills.called import Called
from tests.reliability.kills.disturbances import (
    FEW_DESCRIPTORS,
    FULL_DISK,
    LITTLE_MEMORY,
    READ_ONLY,
    REMOVED,
    SIGNALS,
    TWO_AT_ONCE,
    Disturbance,
)
from tests.reliability.kills.outcomes import DISK, OUT
from tests.reliability.kills.room import remount
from tests.reliability.kills.scenes import Scene
from tests.support.testbed.processes import descendants
from wanbed.testbed.claims.processes import process_start_ticks

_STOPPED_S = 1.0
_LOOK_S = 0.005
_DISK_BYTES = 256 << 10
_LEAST_DESCRIPTORS, _MOST_DESCRIPTORS = 24, 96
_LEAST_MEMORY_BYTES, _MOST_MEMORY_BYTES = 256 << 20, 2 << 30


@dataclass(frozen=True)
class Disturbed:
    """Calls that were disturbed, which may not have ended. ``in_time`` says that the first had not ended before."""

    calls: tuple[Called, ...]
    in_time: bool = True


def disturbed(disturbance: Disturbance, scene: Scene, folder: Path, lasts_s: float) -> Disturbed:
    """Call the command in its folder and disturb it."""
    kind, share = disturbance.kind, disturbance.share
    if kind == FULL_DISK:
        remount(folder / DISK, f"size={max(4096, round(share * _DISK_BYTES))}")
    if kind == READ_ONLY:
        remount(folder / DISK, "ro")
    called = Called(scene, folder, "called", before=_limited(kind, share))
    ends_s = time.monotonic() + share * lasts_s
    while time.monotonic() < ends_s and not called.is_over:
        time.sleep(_LOOK_S)
    in_time = not called.is_over
    if kind == TWO_AT_ONCE:
        return Disturbed((called, Called(scene, folder, "beside")), in_time)
    if kind == REMOVED:
        shutil.rmtree(folder / OUT, ignore_errors=True)
    if kind in SIGNALS:
        return Disturbed((called,), _sent(disturbance, called))
    return Disturbed((called,), in_time or kind != REMOVED)


def _limited(kind: str, share: float) -> Sequence[str]:
    """Return the words that start a command with the limit of a starvation."""
    if kind == FEW_DESCRIPTORS:
        most = round(_LEAST_DESCRIPTORS + share * (_MOST_DESCRIPTORS - _LEAST_DESCRIPTORS))
        return ("prlimit", f"--nofile={most}")
    if kind == LITTLE_MEMORY:
        most = round(_LEAST_MEMORY_BYTES + share * (_MOST_MEMORY_BYTES - _LEAST_MEMORY_BYTES))
        return ("prlimit", f"--as={most}")
    return ()


def _sent(disturbance: Disturbance, called: Called) -> bool:
    """Send the signal, and return whether it came in time."""
    number = SIGNALS[disturbance.kind]
    target = _child(called, disturbance.pick) if disturbance.whom == "child" else called.pid
    if number is signal.SIGINT and disturbance.whom != "child":
        _wait_for_handler(called, number)
    if target is None or called.is_over:
        return False
    send = os.killpg if disturbance.whom == "group" else os.kill
    try:
        send(target, number)
    except ProcessLookupError:
        return False
    if number is signal.SIGSTOP:
        time.sleep(_STOPPED_S)
        with suppress(ProcessLookupError):
            send(target, signal.SIGCONT)
    return True


def _wait_for_handler(called: Called, number: signal.Signals) -> None:
    """Wait until Python handles the signal: before, the kernel ends a process of which no line has run."""
    status = Path(f"/proc/{called.pid}/status")
    while not called.is_over:
        caught = int(status.read_text().partition("SigCgt:")[2].split()[0], 16)
        if caught >> (number - 1) & 1:
            return
        time.sleep(_LOOK_S)


def _child(called: Called, pick: float) -> int | None:
    """Return one of the processes that the command has started; wait for the first. None if it has ended before."""
    while not called.is_over:
        alive = [pid for pid in descendants(called.pid) if process_start_ticks(pid) is not None]
        if alive:
            return alive[int(pick * len(alive))]
        time.sleep(_LOOK_S)
    return None
