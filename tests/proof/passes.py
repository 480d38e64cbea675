"""Passes of pytest: what runs side by side, what has the machine for itself, and what is left to the soak."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.proof.record import PassRecord
from tests.proof.soak_parts import ROOT

RECORDS = ROOT / ".proof"
"""How each pass since `make test` began has ended; not kept by git."""

# Many tests wait, and none that runs side by side minds what else the machine does: so none has a second try, and there
# are twice as many workers as a small machine has cores. Tests of one file stay together, since they share what is dear
# to make, and files begin in the order of tests/conftest.py.
_BY_FILE = ("--dist", "loadfile", "-p", "tests.proof.scheduling")
SIDE_BY_SIDE = ("-n", "4", *_BY_FILE, "--no-loadscope-reorder")
# One worker besides this process: a test that reaches its limit ends the worker, and the others still run.
ALONE = ("-n", "1", *_BY_FILE)

_TESTS_FAILED, _NO_TESTS = 1, 5


def run_pass(
    name: str, how: Sequence[str], which: str, paths: Iterable[str], *options: str, second_try: bool = False
) -> bool:
    """Run the tests of one pass, and return whether they passed.

    With ``second_try`` what fails is run once more, and counted: something else on the machine may have disturbed a
    reading of a real clock.
    """
    with tempfile.TemporaryDirectory() as folder:
        chosen = ["-o", f"cache_dir={folder}", "-m", which, *options, *paths]
        status, record = _run(name, [*how, *chosen])
        if status == _TESTS_FAILED and second_try:
            print("The tests that failed, once more:", flush=True)
            status, second = _run(name, [*how, "--last-failed", "--last-failed-no-failures=none", *chosen])
            record.tried_twice = record.failed
            record.failed = second.failed
            record.passed += second.passed
            record.seconds += second.seconds
    _keep(record)
    return status in {0, _NO_TESTS}


def _run(name: str, arguments: Sequence[str]) -> tuple[int, PassRecord]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "record.json")
        options = ["-p", "tests.proof.record", f"--proof-record={file}", "--durations=15", "--durations-min=10"]
        began_s = time.monotonic()
        status = subprocess.run(
            [sys.executable, "-m", "pytest", "--quiet", *options, *arguments], cwd=ROOT, check=False
        ).returncode
        record = PassRecord(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else PassRecord()
        record.name, record.seconds = name, time.monotonic() - began_s
        return status, record


def _keep(record: PassRecord) -> None:
    RECORDS.mkdir(exist_ok=True)
    number = len(list(RECORDS.iterdir()))
    (RECORDS / f"{number:03}.json").write_text(json.dumps(asdict(record), indent=1), encoding="utf-8")


def forget_passes() -> None:
    """Remove the records of earlier passes."""
    for file in RECORDS.glob("*.json"):
        file.unlink()


def kept_passes() -> list[PassRecord]:
    """Return the records of all passes since they were last forgotten, in their order."""
    return [PassRecord(**json.loads(file.read_text(encoding="utf-8"))) for file in sorted(RECORDS.glob("*.json"))]
