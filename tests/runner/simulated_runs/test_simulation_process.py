import os
import struct
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("sent", [b"", struct.pack("!i", 100) + b"cut short"], ids=["nothing", "part of a message"])
def test_a_process_whose_parent_is_killed_ends_without_a_word(sent: bytes) -> None:
    ours, theirs = Pipe()
    words = [
        sys.executable,
        "-m",
        "wanbed.runner.simulated_runs.simulation_process",
        str(os.getpid()),
        str(theirs.fileno()),
    ]
    with subprocess.Popen(words, cwd=ROOT, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE) as process:
        theirs.close()
        os.write(ours.fileno(), sent)
        ours.close()
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, b"")


def test_a_process_whose_parent_was_killed_while_it_started_ends_without_a_word() -> None:
    ours, theirs = Pipe()
    words = [sys.executable, "-m", "wanbed.runner.simulated_runs.simulation_process", "1", str(theirs.fileno())]
    done = subprocess.run(words, cwd=ROOT, pass_fds=[theirs.fileno()], capture_output=True, timeout=60, check=False)
    ours.close()
    assert (done.returncode, done.stderr) == (0, b"")
