"""Disturb one command as a drawn disturbance says, and judge everything that has to follow."""

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.reliability.kills.called import Called, Undisturbed
from tests.reliability.kills.disturbances import (
    FEW_DESCRIPTORS,
    FULL_DISK,
    LITTLE_MEMORY,
    READ_ONLY,
    REMOVED,
    SIGNALS,
    Disturbance,
    scene_of,
)
from tests.reliability.kills.disturbing import disturbed
from tests.reliability.kills.outcomes import DISK, OUT, runs_of, same
from tests.reliability.kills.room import Room, mounted, remount
from tests.reliability.kills.scenes import Scene
from wanbed.ground.errors import WanbedError
from wanbed.runner.runs.faults import BAD_INPUT, DONE, MACHINE_LACKS, NO_DATA, OUTSIDE_TOLERANCE

_INTERRUPTED, _KILLED, _STOPPED = "INT", "KILL", "STOP"
_FIRST_FILES = {"__init__.py", "__main__.py", "command.py"}
"""The files of the package that are imported before an interrupt is met."""
_ROOMY = "size=64m"


@dataclass(frozen=True)
class Verdict:
    """The consequences of a disturbance; ``wrong`` is empty if all is well.

    ``in_time`` says that the command was not over before. ``status`` is as a shell has it, ``left`` how many things
    were left. ``loads``, ``again`` and ``equal`` are None where there is nothing to load, to call again or to compare.
    """

    in_time: bool
    status: int
    left: int
    loads: bool | None
    again: bool | None
    equal: bool | None
    wrong: tuple[str, ...]


def attempt(disturbance: Disturbance, room: Room, given: Path, whole: Undisturbed) -> Verdict:
    """Disturb the scene's command, call it again undisturbed, and return what followed."""
    scene = scene_of(disturbance)
    with room.scratch(f"attempt-{disturbance.number}") as folder, mounted(folder / DISK, _ROOMY):
        scene.prepare(folder, given)
        before = room.contents()
        found = disturbed(disturbance, scene, folder, whole.lasted_s)
        calls, statuses = found.calls, [called.status() for called in found.calls]
        left = room.left_since(before, [called.pid for called in calls])
        room.clear()
        wrong = [f"left {line}" for line in left]
        for called, status in zip(calls, statuses, strict=True):
            wrong += _faults(disturbance, called, status, in_time=found.in_time)
        remount(folder / DISK, "rw", _ROOMY)
        (folder / OUT).mkdir(exist_ok=True)
        loads, complaint = _loaded(scene, folder)
        wrong += complaint
        again = Called(scene, folder, "again", *(["--resume"] if scene.resumes else []))
        status = again.status()
        went_on = status in _done(scene) and (not scene.resumes or any(run.complete for run in runs_of(folder)))
        wrong += [] if went_on else [f"again: status {status}: {again.said[-300:]}"]
        equal = None if whole.outcome is None or not went_on else same(again.outcome() or {}, whole.outcome)
        wrong += ["not equal to an undisturbed one"] if equal is False else []
    status = next((each for each in statuses if each), 0)
    return Verdict(found.in_time, status, len(left), loads, went_on, equal, tuple(wrong))


def _done(scene: Scene) -> frozenset[int]:
    return frozenset({DONE, OUTSIDE_TOLERANCE} if scene.may_be_outside_tolerance else {DONE})


def allowed_statuses(disturbance: Disturbance, scene: Scene) -> frozenset[int]:
    """Return the statuses of ``docs/commands.md`` for a command that is disturbed before it is over."""
    kind, done = disturbance.kind, _done(scene)
    if kind == REMOVED and scene.resumes:
        return done | {BAD_INPUT, NO_DATA}
    if kind in {FULL_DISK, READ_ONLY, REMOVED}:
        return done | {BAD_INPUT}
    if kind in {FEW_DESCRIPTORS, LITTLE_MEMORY}:
        return done | {MACHINE_LACKS}
    return _after_a_signal(disturbance, scene) if kind in SIGNALS else done


def _after_a_signal(disturbance: Disturbance, scene: Scene) -> frozenset[int]:
    done, by_signal = _done(scene), 128 + SIGNALS[disturbance.kind]
    # A process of a guest takes any signal from outside for a fault of its own.
    faulted = disturbance.whom == "child" and scene.may_boot_guests
    if disturbance.kind == _STOPPED:
        return done | ({NO_DATA} if faulted else set())
    if disturbance.whom != "child":
        return frozenset({by_signal})
    through = {by_signal, *([128 + signal.SIGSEGV] if faulted else [])}
    return done | {NO_DATA} | (through if scene.passes_status_through else set())


def _faults(disturbance: Disturbance, called: Called, status: int | None, *, in_time: bool) -> Iterator[str]:
    """Yield a line for everything that is wrong about how a command has ended."""
    said = called.said
    allowed = allowed_statuses(disturbance, called.scene) if in_time else _done(called.scene)
    if status is None:
        yield "does not end"
    elif status not in allowed:
        yield f"status {status}, not one of {sorted(allowed)}: {said[-300:]}"
    if disturbance.kind == _INTERRUPTED and in_pythons_start(said):
        return
    if "Traceback" in said:
        yield f"a traceback: {said[-1500:]}"
    silent = _done(called.scene) | {128 + SIGNALS[_KILLED], 128 + SIGNALS["TERM"]}
    last = said.rstrip().rpartition("\n")[2]
    if status not in silent and not called.scene.passes_status_through and not last.startswith("wanbed: "):
        yield f"the last line does not say what happened: {last[-300:]}"


def in_pythons_start(said: str) -> bool:
    """Return whether a command was interrupted before its first line, which Python reports in its own words."""
    begins, ends = said.startswith("Traceback "), said.rstrip().endswith("KeyboardInterrupt")
    own = set(re.findall(r"/wanbed/([^\"]+)", said))
    return begins and ends and said.count("Traceback ") == 1 and own <= _FIRST_FILES and ", in main\n" not in said


def _loaded(scene: Scene, folder: Path) -> tuple[bool | None, list[str]]:
    """Return whether every run that is there loads, None if there is none, and what is wrong."""
    if not scene.resumes:
        return None, []
    try:
        return (True if runs_of(folder) else None), []
    except WanbedError as fault:
        return False, [f"does not load: {fault}"]
