"""Run a program's processes until they have done their iterations, and end them."""

import time
from collections.abc import Callable, Sequence
from functools import partial

from wanbed.results.text import count_text
from wanbed.runner.runs.faults import TrialError
from wanbed.runner.trainings.program.on_hosts.first_cause import first_cause
from wanbed.runner.trainings.program.on_hosts.iteration_watch import IterationWatch
from wanbed.runner.trainings.program.on_hosts.process_configs import (
    GRACE_S,
    PROGRAM_PROCESS,
    ProcessLaunch,
    ProgramSetting,
    also_launches,
    rank_launches,
    setup_launches,
)
from wanbed.testbed.hosts.process_group import ProcessGroup
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.workloads.programs.stderr_tail import telling_line_of

_LOOK_S = 0.1
_STRAGGLER_S = 10.0
"""The time in which ranks that have marked no iteration may do so after all others have ended their last one."""
_LAST_WORDS_S = 12.0
"""Time for other processes to end after one has failed: theirs may be the cause."""
_ENDING_S = GRACE_S + 15.0
_LEFT = ("*.spans", "*.software.json", "*.stdout", "*.stderr", "*.fault")
"""Names of the files that processes leave for this one."""


class ProgramRun:
    """The processes of one trial on a testbed.

    ``begin`` is called just before the ranks are started, ``meanwhile`` several times a second.
    """

    def __init__(
        self,
        testbed: RunningTestbed,
        setting: ProgramSetting,
        begin: Callable[[], None],
        meanwhile: Callable[[], None],
    ) -> None:
        self._testbed = testbed
        self._setting = setting
        self._program = setting.places.program
        self._begin = begin
        self._meanwhile = meanwhile
        ranks = range(len(setting.places.placement.places))
        self.span_logs = {rank: setting.span_log(rank) for rank in ranks}
        self._copies = testbed.mirror(setting.folder)
        self._watch = IterationWatch(self.span_logs)

    def run(self) -> None:
        """Run setup, the programs beside the ranks, and the ranks, and end what still runs after their iterations.

        Raise TrialError, one line that names the process that failed first and what it printed last.
        """
        self._set_up()
        with ProcessGroup() as beside, ProcessGroup() as ranks:
            try:
                others = self._start(beside, also_launches(self._setting))
                self._begin()
                trained = self._start(ranks, rank_launches(self._setting))
                self._follow(ranks, trained, beside, others)
            finally:
                _end(ranks)
                _end(beside)
                self._copies.take(_LEFT)

    def _fetch(self, *patterns: str) -> None:
        """Copy what processes elsewhere have written to files of these names since the last time.

        Raise MachineLostError if a machine has gone: what its processes seem to have done then is no fault of theirs.
        """
        self._testbed.check()
        self._copies.look(patterns)

    def _start(self, group: ProcessGroup, launches: Sequence[ProcessLaunch]) -> Sequence[ProcessLaunch]:
        for launch in launches:
            path = self._setting.folder / f"{launch.name}.json"
            launch.config.write(path)
            start = partial(self._testbed.start_module, launch.host, PROGRAM_PROCESS, [str(path)])
            group.start(start, self._setting.folder / f"{launch.name}.words")
        return launches

    def _pause(self, group: ProcessGroup) -> None:
        self._testbed.check()
        self._meanwhile()
        group.wait_for_any(_LOOK_S)

    def _set_up(self) -> None:
        with ProcessGroup() as hosts:
            try:
                launches = self._start(hosts, setup_launches(self._setting))
                deadline_s = time.monotonic() + self._timeout_s

                def pause() -> None:
                    if time.monotonic() > deadline_s:
                        late = launches[hosts.statuses().index(None)]
                        raise TrialError(f"{late.config.label} has not ended within {self._timeout_s:g} s")
                    self._pause(hosts)

                if hosts.first_failure(pause) is not None:
                    self._raise_fault(hosts, launches)
            finally:
                _end(hosts)

    @property
    def _timeout_s(self) -> float:
        return self._program.spec.timeout / 1e9

    def _follow(
        self,
        ranks: ProcessGroup,
        trained: Sequence[ProcessLaunch],
        beside: ProcessGroup,
        others: Sequence[ProcessLaunch],
    ) -> None:
        progress_s, seen, complete_s = time.monotonic(), -1, None
        while True:
            self._fetch("*.spans")
            self._watch.look()
            now_s = time.monotonic()
            if self._watch.total > seen:
                progress_s, seen = now_s, self._watch.total
            if self._watch.all_complete:
                complete_s = complete_s or now_s
                everybody = len(self._watch.complete) == len(self.span_logs)
                if everybody or now_s - complete_s > _STRAGGLER_S:
                    return
            statuses = ranks.statuses()
            if any(statuses):
                ranks.wait_for_all(_LAST_WORDS_S)
                self._raise_fault(ranks, trained)
            if None not in statuses:
                return
            if any(beside.statuses()):
                self._raise_fault(beside, others)
            if now_s - progress_s > self._timeout_s:
                self._fetch("rank-*.std*")
                raise TrialError(self._hang_text())
            self._pause(ranks)

    def _raise_fault(self, group: ProcessGroup, launches: Sequence[ProcessLaunch]) -> None:
        """Raise TrialError for the process of a group that reported a fault first, if any has failed."""
        failed = [number for number, status in enumerate(group.statuses()) if status]
        if not failed:
            return
        self._fetch("*.fault", "rank-*.stdout")
        reports = sorted(self._setting.folder.glob("*.fault"), key=lambda path: path.stat().st_mtime_ns)
        faults = [text for path in reports if (text := path.read_text(errors="replace").strip())]
        said = [*faults, *filter(None, map(group.stderr_tail, failed))]
        cause = first_cause(said) or f"{launches[failed[0]].config.label} failed without a word"
        raise TrialError(cause + self._unmatched_text())

    def _hang_text(self) -> str:
        slowest = self._watch.slowest
        rank = 0 if slowest is None else slowest
        host = self._setting.places.placement.places[rank].host.name
        ended = count_text(self._watch.ended.get(rank, 0), "iteration")
        like = ", like every other rank" if slowest is None and len(self.span_logs) > 1 else ""
        streams = (self._setting.folder / f"rank-{rank}.{stream}" for stream in ("stderr", "stdout"))
        tail = next(filter(None, map(telling_line_of, streams)), "")
        said = f"it printed last: {tail}" if tail else "it printed nothing"
        late = f"rank {rank} on {host} has ended no iteration for {self._timeout_s:g} s after {ended}{like}"
        return f"{late}: {said}{self._unmatched_text()}"

    def _unmatched_text(self) -> str:
        """Return what to know of a pattern that no line had while lines were printed; "" if one had, or none was."""
        pattern = self._program.spec.pattern
        printed = any(path.stat().st_size for path in self._setting.folder.glob("rank-*.stdout"))
        return f"; no line had the pattern {pattern!r}" if pattern and printed and not self._watch.total else ""


def _end(group: ProcessGroup) -> None:
    group.terminate()
    group.wait_for_all(_ENDING_S)
