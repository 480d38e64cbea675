import subprocess
import sys
from pathlib import Path

import pytest

from tests.reliability.fuzz import guard
from tests.reliability.fuzz.guard import TooLongError, bounded

ROOT = Path(__file__).resolve().parents[3]


@bounded()
def spin() -> None:
    while True:
        pass


def test_what_does_not_end_is_stopped_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LONGEST_SECONDS", 0.05)
    with pytest.raises(TooLongError):
        spin()


def test_memory_that_is_given_back_counts_too() -> None:
    # In a process of its own: other tests' libraries give memory back whenever they like.
    program = (
        "from tests.reliability.fuzz.guard import Memory\n"
        "memory = Memory()\n"
        "bytearray(b'1') * (32 << 20)\n"
        "print(memory.most_bytes() >= 30 << 20)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
