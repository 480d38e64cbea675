"""A signal's exception never aborts compiled code that multiplies long integers: it waits for an interpreted step."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wanbed.ground.compiled_core import mypyc_setup
from wanbed.ground.compiled_core.core_modules import ROOT

COMPILED = '''"""Multiply as the simulator does: integers of more than 62 bits."""

from collections.abc import Callable


def multiply(numbers: int, step: Callable[[], None] | None) -> int:
    """Multiply until ``step`` raises."""
    done = 0
    while True:
        for factor in range(1 << 61, (1 << 61) + numbers):
            done += factor * factor & 1
        if step is not None:
            step()
'''
LOOP = """
import signal, sys
sys.path.insert(0, "built")
from products import multiply

def give_up(number, frame):
    raise TimeoutError("it has taken 0.1 s")

signal.signal(signal.SIGALRM, give_up)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the loop, compiled as the core is."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "products.py").write_text(COMPILED)
    command = [sys.executable, "-P", mypyc_setup.__file__, "products.py", ""]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def python(folder: Path, program: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", LOOP + program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_exception_of_a_handler_is_raised_with_its_text_by_the_next_interpreted_step(folder: Path) -> None:
    program = """
for turn in range(10):
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        multiply(10_000, lambda: None)
    except TimeoutError as end:
        print(end)
"""
    process = python(folder, program)
    output, _ = process.communicate()
    assert (process.returncode, output.splitlines()) == (0, ["it has taken 0.1 s"] * 10)


def test_ctrl_c_arrives_as_itself_again_and_again(folder: Path) -> None:
    program = """
for turn in range(5):
    try:
        print("at work", flush=True)
        multiply(10_000, lambda: None)
    except KeyboardInterrupt:
        pass
"""
    process = python(folder, program)
    assert process.stdout is not None
    for _ in process.stdout:
        process.send_signal(signal.SIGINT)
    assert process.wait() == 0


def test_a_second_ctrl_c_ends_what_has_no_interpreted_step(folder: Path) -> None:
    process = python(folder, 'print("at work", flush=True)\nmultiply(1 << 60, None)')
    assert process.stdout is not None
    process.stdout.readline()
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    assert process.returncode == -signal.SIGINT
    process.stdout.close()
