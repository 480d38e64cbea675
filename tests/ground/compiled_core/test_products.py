"""Compiled code multiplies integers of any size exactly, and a signal's exception never aborts it meanwhile.

The exception waits for an interpreted step.
"""

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


def product(left: int, right: int) -> int:
    """Return the product."""
    return left * right
'''
LOOP = """
import signal, sys
sys.path.insert(0, "built")
from products import multiply, product

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


def test_products_are_exact_around_the_sizes_that_are_kept_in_another_way(folder: Path) -> None:
    program = """
powers = [1 << bits for bits in (0, 1, 15, 29, 30, 31, 32, 33, 46, 60, 61, 62, 63, 64, 70)]
near = [sign * (power + more) for power in powers for more in (-1, 0, 1) for sign in (-1, 1)]
print(sum(product(left, right) != left * right for left in near for right in near), len(near))
"""
    output, _ = python(folder, program).communicate()
    assert output.split() == ["0", "90"]


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
