"""Skips that are allowed where ``CI=true``: there a test fails if it skips for what its machine could have had."""

import os
import re
from collections.abc import Generator

import pytest

ALLOWED = {
    r"no kernel substrate: ": "the kernel has no sch_netem; the same tests run on the guest substrate",
    r"this machine's own kernel has netem": "the same tests run on the kernel substrate",
    r"no Python [\d.]+ here": "the hook is tested under each Python that the machine has",
    r"WANBED_DATA names no folder|the public WAN figures are not at ": "public data sets are not part of the project",
    r"shows what happens on a machine without a GPU|this torch sees a GPU": "the machine has a GPU",
    r"shows a torch without NCCL": "this torch has NCCL",
    r"torchft is not installed": "torchft has wheels for x86_64 only",
}
"""Patterns of reasons, each with why no set-up could satisfy it."""

CUT_OFF = "cut off: "
"""How the reason begins of a test that the pass had no time left for."""


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test or a module was skipped."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


def is_allowed(reason: str) -> bool:
    """Tell whether a reason is on the list."""
    return reason.startswith(CUT_OFF) or any(re.match(pattern, reason) for pattern in ALLOWED)


def fail_avoidable(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure where ``CI=true`` and its reason is not on the list."""
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped and os.environ.get("CI") == "true" and not is_allowed(reason := reason_of(report)):
        report.outcome = "failed"
        report.longrepr = f"skipped, for a reason that tests/proof/skips.py does not allow: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that skips avoidably."""
    report = yield
    fail_avoidable(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a module that skips avoidably."""
    report = yield
    fail_avoidable(report)
    return report
