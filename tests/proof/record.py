"""A pytest plugin that records how a pass ended, and cuts it off when its time is up.

``--proof-record FILE`` takes the record; ``--cut-off-at TIME``, in seconds since 1970, skips what begins later.
"""

import json
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.proof.skips import CUT_OFF, reason_of

_LEFT = "left_to_the_soak"


@dataclass
class PassRecord:
    """How one pass of pytest ended: its tests by outcome, skips by reason, and how many tests it left to the soak."""

    name: str = ""
    seconds: float = 0.0
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, list[str]] = field(default_factory=dict)
    tried_twice: list[str] = field(default_factory=list)
    left_to_the_soak: int = 0

    @property
    def cut_off(self) -> list[str]:
        """The tests that there was no time for."""
        return [test for reason, tests in self.skipped.items() if reason.startswith(CUT_OFF) for test in tests]


class _Recorder:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._record = PassRecord()
        self._skipped = defaultdict[str, list[str]](list)

    def pytest_runtest_setup(self) -> None:
        cut_off_at = self._config.getoption("--cut-off-at")
        if cut_off_at is not None and time.time() > cut_off_at:
            pytest.skip(f"{CUT_OFF}no time left")

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._record.left_to_the_soak += sum(item.get_closest_marker("soak") is not None for item in items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._add(report)
        self._record.passed += report.passed and report.when == "call"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._add(report)

    def _add(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and report.nodeid not in self._record.failed:
            self._record.failed.append(report.nodeid)
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped[reason_of(report)].append(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # Each worker collects everything; the process that starts them collects nothing.
        self._record.left_to_the_soak = getattr(node, "workeroutput", {}).get(_LEFT, self._record.left_to_the_soak)

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[_LEFT] = self._record.left_to_the_soak
        elif path := self._config.getoption("--proof-record"):
            self._record.skipped = dict(self._skipped)
            Path(path).write_text(json.dumps(asdict(self._record), indent=1), encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options."""
    parser.addoption("--proof-record", metavar="FILE")
    parser.addoption("--cut-off-at", metavar="TIME", type=float)


def pytest_configure(config: pytest.Config) -> None:
    """Record this process."""
    config.pluginmanager.register(_Recorder(config))
