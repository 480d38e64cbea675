"""How tests run: property tests with the same examples each time, so that a landing owes nothing to luck.

``WANBED_SEARCH=1`` draws more of them, anew each time or as ``--hypothesis-seed`` says; so does the soak.
"""

import gc
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.proof.skips import pytest_make_collect_report, pytest_runtest_makereport

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]

# The sources are tested, whatever is compiled; tests of the compiled core ask for it. Before any import of them.
os.environ.setdefault("WANBED_PURE", "1")

# A busy machine is slow: that is no finding.
_ANY_PACE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeatable", derandomize=True, max_examples=40, **_ANY_PACE)
settings.register_profile("search", print_blob=True, **_ANY_PACE)
settings.load_profile("search" if os.environ.get("WANBED_SEARCH") else "repeatable")

# Tests run side by side, and torch is loaded later. If it took all cores for itself, here and in the programs that
# tests start, its threads would mostly wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")


# What a script puts into the background begins with interrupts ignored, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# All that is imported and collected stays until the end: a third of the time that takes would be a search for garbage.
gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage from here on, but never among what was collected of the tests."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def interrupts_stay_with_python() -> Iterator[None]:
    """Fail a module after which an interrupt would end this process on the spot, with every test that it still has.

    Native libraries take the handler over and put the kernel's own in its place, which Python does not notice.
    """
    yield
    (caught,) = re.findall(r"^SigCgt:\s*(\w+)$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    assert int(caught, 16) >> (signal.SIGINT - 1) & 1, "an interrupt no longer reaches Python's handler"


SYSTEM = Path(__file__).parent / "system"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the system tests: of those that run side by side, one that takes minutes is then never the last."""
    items.sort(key=lambda item: SYSTEM not in item.path.parents)
