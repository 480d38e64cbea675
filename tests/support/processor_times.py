"""A pytest plugin that accounts the processor time of each test, its child processes included: ``make test-times``.

Each pytest process, workers of xdist too, moves into a control group of its own, which its children inherit; guests,
Ray and detached ranks are counted as well as children that were waited for. A machine without a writable control group
has the times of the process and of its ended children instead, and the table says so.
"""

import json
import os
import resource
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import pytest

_ACCOUNTS = {Path("/sys/fs/cgroup"): "cpu.stat", Path("/sys/fs/cgroup/cpuacct"): "cpuacct.usage"}
"""Where version 2 and version 1 of control groups are mounted, and the file of a group that has its time."""
_PROPERTY = "processor_times"
_TABLE_ROWS = 40


@dataclass
class TestTime:
    """Processor and wall time of one test, its set-up and tear-down included."""

    processor_s: float = 0.0
    wall_s: float = 0.0


class ProcessorClock:
    """Read the processor time that this process and all that it started have used so far."""

    def __init__(self) -> None:
        self._group: Path | None
        self._group, self._account = _own_group() or (None, -1)
        # Bound now: tests replace what opens and reads files.
        self._read = os.pread

    @property
    def source(self) -> str:
        """Name the source: a control group, or resource usage of this process and its ended children."""
        return "by control group" if self._group else "of pytest and its ended children only: no control group"

    def read_s(self) -> float:
        """Return seconds of one core."""
        if self._group is None:
            used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
            return sum(each.ru_utime + each.ru_stime for each in used)
        account = self._read(self._account, 256, 0).split()
        return int(account[0]) / 1e9 if len(account) == 1 else int(account[1]) / 1e6

    def close(self) -> None:
        """Leave the control group, and remove it unless something still runs in it."""
        if self._group is not None:
            os.close(self._account)
            with suppress(OSError):
                (self._group.parent / "cgroup.procs").write_text(str(os.getpid()))
                self._group.rmdir()


def _own_group() -> tuple[Path, int] | None:
    """Move this process into a new control group. Return it with its account, opened; None where that is refused."""
    for root, account in _ACCOUNTS.items():
        group = root / f"wanbed-test-times-{os.getpid()}"
        # Version 1 has only folders of controllers where version 2 has its root.
        if not (root / "cgroup.procs").exists():
            continue
        with suppress(OSError):
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
            return group, os.open(group / account, os.O_RDONLY)
    return None


class Accounting:
    """Account every test of this process, and print the table where reports of all workers come together."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._clock = ProcessorClock()
        self._times: dict[str, TestTime] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        item.stash[_BEFORE] = self._clock.read_s()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now_s = self._clock.read_s()
        report.user_properties.append((_PROPERTY, now_s - item.stash[_BEFORE]))
        item.stash[_BEFORE] = now_s
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        time = self._times.setdefault(report.nodeid, TestTime())
        # Reports of one test share a list of properties: the last one is this phase's. A worker that crashed has none.
        spent = [value for name, value in report.user_properties if name == _PROPERTY] or [0.0]
        time.processor_s += float(spent[-1])  # type: ignore[arg-type]
        time.wall_s += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if path := self._config.getoption("--test-times"):
            Path(path).write_text(json.dumps({test: asdict(time) for test, time in self._times.items()}, indent=1))
        terminalreporter.section(f"processor time by file, {self._clock.source}")
        files: dict[str, TestTime] = {}
        counts = Counter[str]()
        for test, time in self._times.items():
            file = test.partition("::")[0]
            counts[file] += 1
            spent = files.setdefault(file, TestTime())
            spent.processor_s += time.processor_s
            spent.wall_s += time.wall_s
        dearest = sorted(files, key=lambda file: files[file].processor_s, reverse=True)
        whole = TestTime(*(sum(column) for column in zip(*map(astuple, files.values()), strict=True)))
        terminalreporter.write_line(f"{'processor':>10} {'wall':>9} {'tests':>6}")
        rows = [(whole, counts.total(), f"all {len(files)} files")]
        rows += [(files[file], counts[file], file) for file in dearest[:_TABLE_ROWS]]
        for spent, tests, name in rows:
            terminalreporter.write_line(f"{spent.processor_s:>8.1f} s {spent.wall_s:>7.1f} s {tests:>6}  {name}")

    def pytest_unconfigure(self) -> None:
        self._clock.close()


_BEFORE = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--test-times", metavar="FILE", help="also write the times of all tests into this JSON file")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Accounting(config), "wanbed-processor-times")
