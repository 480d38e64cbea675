"""Try inputs of a kind, one number after the other. A number with its seed is always the same input."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import process_time

from tests.reliability.fuzz.calls import called, called_part
from tests.reliability.fuzz.guard import MOST_BYTES, MOST_SECONDS, Memory, TooLongError, bounded
from tests.reliability.fuzz.judgement import Ended, Outcome, faults_of
from tests.reliability.fuzz.kind import FILE, INPUT, Command, Kind, Read
from wanbed.runner.runs.faults import DONE, OUTSIDE_TOLERANCE

_SIGNALLED = 128
"""The exit status of a command that a signal has ended is this and the signal's number."""


@dataclass(frozen=True)
class Attempt:
    """The outcome of one input: its faults, the end of its command, and what that took."""

    kind: str
    seed: int
    number: int
    faults: tuple[str, ...]
    ended: Ended
    seconds: float
    most_bytes: int

    @property
    def outcome(self) -> Outcome:
        """Accepted, refused, or a fault."""
        if self.faults:
            return Outcome.FAULT
        return Outcome.ACCEPTED if self.ended.status in {DONE, OUTSIDE_TOLERANCE} else Outcome.REFUSED

    @property
    def repeat(self) -> str:
        """The command that tries this input again."""
        return f"python -m tests.reliability.fuzz --seed {self.seed} --number {self.number} '{self.kind}'"


def attempts(kind: Kind, seed: int, numbers: Iterable[int], kept: Path | None = None) -> Iterator[Attempt]:
    """Yield what becomes of each input, which is left in the folder ``kept`` if there is one."""
    with TemporaryDirectory(prefix="fuzz-") as made:
        valid = Path(made) / "valid"
        valid.mkdir()
        kind.make(valid)
        for number in numbers:
            folder = (kept or Path(made)) / f"{number}"
            shutil.copytree(valid, folder / INPUT)
            yield _tried(kind, seed, number, folder / INPUT)
            if kept is None:
                shutil.rmtree(folder)


def unchanged(kind: Kind, folder: Path) -> list[Ended]:
    """Return how the valid input of a kind ends with each of its commands."""
    ends = []
    for position, use in enumerate(kind.uses):
        inner = folder / f"{position}" / INPUT
        inner.mkdir(parents=True)
        kind.make(inner)
        ends += [
            _ended(use, inner, file) for file in (kind.files(inner) if not callable(use) and FILE in use else [inner])
        ]
    return ends


def _tried(kind: Kind, seed: int, number: int, folder: Path) -> Attempt:
    draw = Random(f"{seed} {kind.name} {number}")
    file = kind.damage_one(folder, draw)
    use = draw.choice(kind.uses)
    memory, begin = Memory(), process_time()
    try:
        with bounded():
            ended = _ended(use, folder, file)
    except TooLongError as fault:
        ended = Ended(DONE, fault=fault)
    if ended.status > _SIGNALLED:
        # The command has ended in one line, as it should, and the signal was meant for all that is still to come.
        raise SystemExit(ended.status)
    seconds, most_bytes = process_time() - begin, memory.most_bytes()
    faults = faults_of(ended, folder, names_its_file=kind.names_its_file)
    if seconds > MOST_SECONDS:
        faults.append(f"{seconds:.0f} s")
    if most_bytes > MOST_BYTES:
        faults.append(f"{most_bytes >> 20} MiB of memory")
    return Attempt(kind.name, seed, number, tuple(faults), ended, seconds, most_bytes)


def _ended(use: Command | Read, folder: Path, file: Path) -> Ended:
    if callable(use):
        return called_part(lambda: use(folder))
    return called([argument.replace("{}", str(folder)).replace(FILE, str(file)) for argument in use])
