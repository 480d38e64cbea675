"""Ctrl-C ends the command in one line from its first moments on."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LINE = "wanbed: interrupted, nothing of it is left running\n"
STATUS = 128 + signal.SIGINT

AT_AN_IMPORT = """
import os, signal, sys
import wanbed.command
class Interrupting:
    left = int(sys.argv.pop(1))
    def find_spec(self, name, path=None, target=None):
        Interrupting.left -= 1
        if Interrupting.left == 0:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
wanbed.command.main()
"""
AFTER_A_WHILE = """
import sys
import wanbed.command
class Announcing:
    def find_spec(self, name, path=None, target=None):
        sys.meta_path.remove(self)
        print("first import", flush=True)
sys.meta_path.insert(0, Announcing())
wanbed.command.main()
"""


@pytest.mark.parametrize("number", [1, 2, 5, 20, 100, 300, 600, 900, 1100])
def test_an_interrupt_at_any_import_ends_in_one_line(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-c", AT_AN_IMPORT, str(number), "simulate", "first"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == STATUS, done.stderr
    assert done.stderr.splitlines()[-1].startswith(LINE.strip())
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5])
def test_an_interrupt_at_any_moment_from_the_first_import_on_shows_no_traceback(tmp_path: Path, seconds: float) -> None:
    command = [sys.executable, "-c", AFTER_A_WHILE, "simulate", "atlas-vs-baselines"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first import\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == STATUS, error
    assert error.splitlines()[-1].startswith(LINE.strip())
    assert "Traceback" not in error
    assert "Exception ignored" not in error


def test_an_interrupt_that_a_shell_has_ignored_stays_ignored(tmp_path: Path) -> None:
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{AT_AN_IMPORT}"
    command = [sys.executable, "-c", ignoring, "100", "simulate", "first", "--dry-run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "first: gpipe, repeat 0"), done.stderr
