"""A pytest plugin for a planted fault: one failing example is enough, and a test that spins ends the process."""

import signal

import pytest
from hypothesis import Phase, settings

MOST_PROCESSOR_S = 15


def pytest_configure() -> None:
    # Nobody asks for the shortest example.
    settings.register_profile("first failure", settings(), phases=[Phase.explicit, Phase.generate])
    settings.load_profile("first failure")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart() -> None:
    signal.setitimer(signal.ITIMER_PROF, MOST_PROCESSOR_S)


def pytest_runtest_logfinish() -> None:
    # Between tests and after the last one, a slow machine may need as much.
    signal.setitimer(signal.ITIMER_PROF, 0)
