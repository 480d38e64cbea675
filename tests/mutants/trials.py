"""Plant a fault in a copy of the tree, and run the tests that mirror its module."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.faults import Fault, faults_in
from tests.mutants.mirrored_tests import mirrored_folder, near_tests, nearest_first

_PYTEST = (
    *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants.first_failure"),
    *("-m", "not soak and not measures", "--timeout", "90"),
)
_MOST_S = 600
"""A trial that takes longer is without end, though each of its tests has limits of its own."""
_MOST_MEMORY_BYTES = 6 << 30
_TIMES_S = count(1)


class Outcome(StrEnum):
    """Name who noticed a fault: the mirrored folder's tests, those one folder above, a limit of time, or nothing."""

    CAUGHT = "caught"
    NEAR = "one folder above"
    ENDLESS = "without end"
    SURVIVED = "survived"


@dataclass(frozen=True)
class Planted:
    """A fault in a module, whose path is relative to the root."""

    module: Path
    source: str
    fault: Fault

    def lines(self) -> tuple[str, str]:
        """Return the line where the fault begins, without and with it."""
        texts = self.source, self.fault.planted(self.source)
        before, after = (text.splitlines()[self.fault.line - 1].strip() for text in texts)
        return before, after


def drawn(root: Path, modules: Sequence[Path], faults: int, seed: int) -> list[Planted]:
    """Draw so many ``faults`` of all that there are, each equally often, but no two of one line."""
    found = [
        Planted(module, source, fault)
        for module in modules
        for source in [(root / module).read_text(encoding="utf-8")]
        for fault in faults_in(source)
    ]
    random.Random(seed).shuffle(found)
    first_of_line = {(each.module, each.fault.line): each for each in reversed(found)}
    return [each for each in found if first_of_line[each.module, each.fault.line] is each][:faults]


@contextmanager
def copies(root: Path, at_once: int) -> Iterator[SimpleQueue[Path]]:
    """Copy what git knows or would add into ``build``, which it ignores: guests of tests cover /tmp with their own."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=root, capture_output=True, text=True, check=True).stdout
    (root / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=root / "build", ignore_cleanup_errors=True) as folder:
        idle: SimpleQueue[Path] = SimpleQueue()
        for number in range(at_once):
            copy = Path(folder, str(number))
            for name in filter(None, listed.split("\0")):
                if (root / name).is_file() or (root / name).is_symlink():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    # A link leads to the copy's folder, where the fault is.
                    shutil.copy2(root / name, copy / name, follow_symlinks=False)
            idle.put(copy)
        yield idle


def complaint_without_fault(folder: Path, idle: SimpleQueue[Path]) -> str:
    """Run a folder's tests as they are. Return the output if they do not pass: no fault can be judged by them."""
    copy = idle.get()
    try:
        status, output = _run(copy, [folder])
    finally:
        idle.put(copy)
    return output if status else ""


def judge(planted: Planted, idle: SimpleQueue[Path]) -> Outcome:
    """Plant a fault, run tests until one fails, the mirrored ones first, and take the fault out again."""
    copy = idle.get()
    file = copy / planted.module
    try:
        _write(file, planted.fault.planted(planted.source))
        for noticed, chosen in ((Outcome.CAUGHT, nearest_first), (Outcome.NEAR, near_tests)):
            tests = chosen(planted.module, copy)
            status, output = _run(copy, tests) if tests else (0, "")
            if status:
                return Outcome.ENDLESS if status < 0 or "+ Timeout +" in output else noticed
        return Outcome.SURVIVED
    finally:
        _write(file, planted.source)
        idle.put(copy)


def _write(file: Path, text: str) -> None:
    """Write a module with a time of its own: Python tells by time and size whether it has compiled this text."""
    file.write_text(text, encoding="utf-8")
    at_s = next(_TIMES_S)
    os.utime(file, (at_s, at_s))


def folder_of(planted: Planted, root: Path) -> Path:
    """Return the folder of tests by which a fault is judged."""
    return mirrored_folder(planted.module, root)


def _run(copy: Path, tests: Sequence[Path]) -> tuple[int, str]:
    """Run tests in a copy. Return pytest's status, negative where a limit ended it, and the end of its output."""
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": ""}
    limited = ["prlimit", f"--data={_MOST_MEMORY_BYTES}", *_PYTEST, *map(str, tests)]
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            limited, cwd=copy, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        ) as process,
    ):
        try:
            status = process.wait(_MOST_S)
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        return status, output.read()[-4000:]
