"""The compiled core and the sources give the same: bytes of spans and traffic, errors, and answers to signals.

Compiling takes most of a minute, once for each state of the sources: it goes to the cache of whoever tests.
"""

import os
import subprocess
import sys

import pytest

from wanbed.ground.compiled_core.core_build import CompilerError, build_core
from wanbed.ground.compiled_core.core_modules import ROOT

# Following packets takes minutes where nothing is compiled.
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

DRAWN = 60


@pytest.fixture(scope="module")
def _core() -> None:
    try:
        build_core()
    except CompilerError as lacks:
        pytest.skip(str(lacks))


def simulated(pure: str) -> list[str]:
    """The lines of ``simulated_bytes`` from a process of its own."""
    argv = [sys.executable, "-m", "tests.support.simulator.simulated_bytes", str(DRAWN)]
    environment = {**os.environ, "WANBED_PURE": pure}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.usefixtures("_core")
def test_compiled_and_not_compiled_give_the_same_bytes_errors_and_answers_to_signals() -> None:
    compiled, pure = simulated("0"), simulated("1")
    assert (compiled[0], pure[0]) == ("compiled", "pure")
    assert compiled[1:] == pure[1:]
    assert sum(line.startswith("drawn") and "refused" not in line for line in pure) > DRAWN / 2
    (stopped,) = (line for line in pure if line.startswith("stopped: "))
    assert stopped.startswith("stopped: interrupted, 0.")


@pytest.mark.usefixtures("_core")
def test_a_relay_models_tcp_with_the_compiled_core() -> None:
    """Its delays are a subclass, not compiled, of a class that is."""
    argv = [sys.executable, "-m", "wanbed", "calibrate", "first", "--substrate", "relay"]
    environment = {**os.environ, "WANBED_PURE": "0"}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    # 1 if a busy machine brought a link outside its tolerance.
    assert done.returncode in {0, 1}, done.stderr
