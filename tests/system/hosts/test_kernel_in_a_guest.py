"""The kernel's own substrate on real netem, where this machine's kernel has none: its tests run inside a guest.

The guest's kernel has netem. It runs pytest and all that pytest starts: hosts, gateways and programs of the testbeds.
A gateway guest has the real clock, and one processor for all of them, which carries no high rates: links are calibrated
in virtual time, where whatever else this machine does changes nothing.
"""

import re
import sys
from pathlib import Path

import pytest

from tests.system.hosts.gateway_guest import run_in_gateway_guest
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip, printed_inside
from wanbed.testbed.substrate.offer import KERNEL
from wanbed.testbed.substrate.probe import probe_kernel

ROOT = Path(__file__).parents[3]
LIMIT_S = 300


@pytest.fixture(autouse=True)
def _lacks_netem() -> None:
    if probe_kernel().available:
        pytest.skip("this machine's own kernel has netem: the same tests run on it")


def arguments(*files: str, among: str = KERNEL) -> list[str]:
    """Of pytest, for the kernel substrate's tests in those files. Their limit is that of the test out here."""
    options = ["-q", "-p", "no:cacheprovider", "--basetemp=/dev/shm/pytest", "--tb=short", "--durations=3"]
    options.append("--timeout=0")
    return [*options, "-k", among, *(f"tests/system/{file}" for file in files)]


def check_passed(said: str) -> None:
    print(said)
    counts = r"^\d+ passed, \d+ deselected(, \d+ warnings?)? in "
    assert re.search(counts, said, re.MULTILINE), "failed or skipped inside, as printed"


# Every run in virtual time is on the kernel's substrate, in a kernel that is a guest too.
@pytest.mark.soak
@pytest.mark.timeout(LIMIT_S + 60)
def test_the_kernel_substrate_works_on_the_real_clock(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pytest", *arguments("hosts/test_testbed.py", "hosts/test_tcp_state.py")]
    check_passed(run_in_gateway_guest(argv, tmp_path, start_in=ROOT, limit_s=LIMIT_S))


@pytest.mark.parametrize(
    "among", [f"{KERNEL} and jitter", pytest.param(f"{KERNEL} and not jitter", marks=pytest.mark.soak)]
)
def test_calibration_of_the_kernel_substrate_is_within_tolerance_in_virtual_time(among: str) -> None:
    check_passed(printed_inside("pytest", kernel_or_skip(), *arguments("links/test_calibration.py", among=among)))
