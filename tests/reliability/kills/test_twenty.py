"""Twenty disturbances of ``make reliability``, always the same: every command of one machine, and every disturbance.

Those of a rack are in ``tests/system/rack/ray/test_rack_kills.py``.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.reliability.kills.disturbances import SIGNALS, STARVATIONS, WHOM, drawn
from tests.reliability.kills.ledger import Entry, read_entries
from tests.reliability.kills.scenes import SCENES
from tests.support.until import until_within

SEED = 1
NUMBERS = (0, 5, 8, 9, 10, 11, 19, 21, 24, 50, 54, 55, 92, 115, 138, 164, 168, 216, 280, 332)
PATIENCE_S = 240


def test_they_cover_every_command_and_every_disturbance() -> None:
    chosen = [drawn(SEED, number) for number in NUMBERS]
    assert {each.scene for each in chosen} == {scene.name for scene in SCENES}
    signals = {(kind, whom) for kind in SIGNALS for whom in WHOM}
    assert {(each.kind, each.whom) for each in chosen} == signals | {(kind, "") for kind in STARVATIONS}


class Attempts:
    """Attempts that are being made one after the other, in a process that has entered a room."""

    def __init__(self, process: "subprocess.Popen[bytes]", ledger: Path) -> None:
        self._process, self._ledger = process, ledger

    def entry(self, number: int) -> Entry:
        """Wait for the line of an attempt."""

        def found() -> list[Entry]:
            return [entry for entry in read_entries(self._ledger) if entry.number == str(number)]

        until_within(PATIENCE_S, lambda: bool(found()) or self._process.poll() is not None)
        (entry,) = found()
        return entry


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attempts]:
    ledger = tmp_path_factory.mktemp("reliability") / "ledger.csv"
    numbers = [str(number) for number in NUMBERS]
    command = [sys.executable, "-m", "tests.reliability.kills", "--seed", str(SEED), "--ledger", str(ledger), *numbers]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        yield Attempts(process, ledger)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


@pytest.mark.soak
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: f"{number} {drawn(SEED, number).scene}")
def test_nothing_is_left_and_all_goes_on(number: int, attempts: Attempts) -> None:
    assert attempts.entry(number).wrong == ""
