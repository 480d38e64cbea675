"""Run a companion's own processes on hosts: ready at a gate before training, going from its begin, ended after it."""

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol

from wanbed.runner.emulation.companion import Companion
from wanbed.runner.emulation.running_trial import RunningTrial, Trained
from wanbed.runner.resolve.dilation import undilated_ns
from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.hosts.process_group import ProcessGroup
from wanbed.testbed.hosts.start_gate import Gate
from wanbed.workloads.start_gate import PIPES

_PATIENCE_S = 60.0

_GRACE_S = 10.0


class ProcessConfig(Protocol):
    """The configuration of a process."""

    def write(self, path: Path) -> None:
        """Write it as the file that the process reads."""


class ProcessCompanion(Companion):
    """A companion of processes on hosts, whose errors begin with ``field``.

    Each process reads the file of its configuration, comes to ``gate`` and waits there until training begins
    (``workloads.start_gate.wait_at_gate``), and ends with status 0 at SIGTERM. On a machine of a rack ``epoch_ns`` and
    ``parent_pid`` of the configuration, and its paths below ``folder``, are those of that machine. Where one cannot
    begin, ends before the training, or does not end well, a trial ends with TrialError: something else than was asked
    for ran beside it. An error of the training comes first, and MachineLostError.
    """

    field: ClassVar[str]

    def __init__(self, trial: RunningTrial, groups: int = 1) -> None:
        """Let processes be in so many groups, of which the first ends first."""
        self.testbed, self.setting = trial.testbed, trial.setting
        self.folder = trial.setting.folder / self.field
        self.gate = self.folder / "gate"
        self.groups = tuple(ProcessGroup() for _ in range(groups))
        self._opening: Gate

    @abstractmethod
    def hosts(self) -> Sequence[str]:
        """Return the host of each process."""

    @abstractmethod
    def start(self) -> None:
        """Start all processes, each with ``run``."""

    def run(
        self, module: str, number: int, host: str, config: ProcessConfig, group: ProcessGroup | None = None
    ) -> None:
        """Start a process of ``module`` on a host; ``number`` tells those of one module apart."""
        path = self.output(module, number, ".json")
        config.write(path)
        start = partial(self.testbed.start_module, host, module, [str(path)])
        (self.groups[0] if group is None else group).start(start, path.with_suffix(".words"))

    def output(self, module: str, number: int, suffix: str) -> Path:
        """Return the file of a process with that suffix: a machine of a rack sends back what is named like this."""
        return self.folder / f"{module.rpartition('.')[2]}-{number}{suffix}"

    def trial_ns(self, trained: Trained, host: str, logged_ns: int) -> int:
        """Return when that was, undilated, since the trial's start, which is the earliest.

        A process on ``host`` has logged it, since the field ``epoch_ns`` of its configuration.
        """
        since_ns = logged_ns if trained.line is None else trained.line.trial_ns(host, logged_ns)
        return undilated_ns(max(since_ns, 0), self.setting.dilation)

    @contextmanager
    def during(self) -> Iterator[None]:
        """Run the processes inside the block."""
        self.folder.mkdir()
        gate = self.testbed.gate(self.gate, self.hosts(), PIPES, opens_itself=False)
        with ExitStack() as groups, gate as self._opening:
            for group in reversed(self.groups):
                groups.enter_context(group)
            self.start()
            self._await_at_gate()
            yield
            self.look()
            self.begin()
            self.end()

    def begin(self) -> None:
        """Let all processes begin, if they have not yet."""
        if not self._opening.is_open:
            self._opening.open()

    def look(self) -> None:
        """Raise TrialError if a process has ended."""
        self._check_running(self.groups)

    def end(self) -> None:
        """End all processes. Raise TrialError if one does not end well."""
        for group in self.groups:
            self.end_group(group)

    def end_group(self, group: ProcessGroup) -> None:
        """End all processes of a group. Raise TrialError if one does not end well."""
        group.terminate()
        group.wait_for_all(_GRACE_S)
        if any(status != 0 for status in group.statuses()):
            raise self._first_fault(group)

    def _await_at_gate(self) -> None:
        """Wait until all processes have come to their gate. Raise TrialError if one ends, or it takes too long."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            self._opening.look()
            if self._opening.is_complete:
                return
            # Those of the first groups may depend on the last ones, whose fault is then the cause.
            self._check_running(self.groups[::-1])
            if time.monotonic() >= deadline_s:
                raise TrialError(f"{self.field}: its processes were not ready within {_PATIENCE_S:.0f} s")
            self.groups[0].wait_for_any(1.0, or_readable=self._opening)

    def _check_running(self, groups: Sequence[ProcessGroup]) -> None:
        for group in groups:
            if any(status is not None for status in group.statuses()):
                raise self._first_fault(group)

    def _first_fault(self, group: ProcessGroup) -> TrialError:
        """Return an error about the first process of a group that has failed, or else the first that has ended.

        Raise MachineLostError if a machine has gone, and the process with it.
        """
        self.testbed.check()
        statuses = group.statuses()
        number = next((each for each, status in enumerate(statuses) if status), 0)
        said = group.stderr_tail(number)
        how = "did not end" if statuses[number] is None else f"ended with status {statuses[number]}"
        return TrialError(said or f"{self.field}: process {number} {how}, and without a word")
