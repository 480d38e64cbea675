"""Simulate trials on processes of this machine, as many at a time as are given, into a run's folder.

The processes are programs of their own (``simulation_process``), so that they depend on nothing that this one holds:
neither on its memory nor on the script that it runs. Each is handed one trial at a time, writes it to the run itself,
and dies with this process whatever ends it. They leave interrupts to this process: what a terminal sends to all of them
at once ends the sweep in one place.
"""

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

from wanbed.module_process import module_command
from wanbed.results.records.run_store import remove_partial_trials
from wanbed.results.records.written_spans import WrittenSpans
from wanbed.runner.runs.faults import TrialError
from wanbed.runner.runs.progress import Progress
from wanbed.runner.simulated_runs.simulated_trial import SimulatedTrial, simulate_into
from wanbed.runner.simulator.simulation import Simulate

_PROGRAM = "wanbed.runner.simulated_runs.simulation_process"
_REFRESH_S = 0.5


class ProcessPool:
    """Processes of this machine, ``jobs`` of them (default: one per core); a single one needs no other process.

    ``written`` gets the spans of a trial that is the only one. Of several, the next one may need the memory.
    """

    def __init__(self, jobs: int | None = None, written: WrittenSpans | None = None) -> None:
        self._jobs = jobs or len(os.sched_getaffinity(0))
        self._written = written

    def simulate_all(self, trials: Sequence[SimulatedTrial], run: Path, progress: Progress, simulate: Simulate) -> None:
        """Simulate the trials into the run's folder, as ``Pool`` says."""
        processes = min(self._jobs, len(trials))
        if processes > 1:
            _side_by_side(trials, run, processes, progress, simulate)
            return
        for trial in trials:
            progress.trial_started(trial.values, trial.id.variant, trial.id.repeat)
            written = self._written if len(trials) == 1 else None
            fault = simulate_into(run, trial, simulate, partial(progress.trial_is_at, trial.id), written)
            if fault is not None:
                raise fault
            progress.trial_ended_beside_others(trial.values, trial.variant.name, trial.id)


def _side_by_side(
    pending: Sequence[SimulatedTrial], run: Path, processes: int, progress: Progress, simulate: Simulate
) -> None:
    left = deque(pending)
    at_work: dict[Connection, SimulatedTrial | None] = {}
    workers: dict[Connection, subprocess.Popen[bytes]] = {}
    try:
        with _signals_held():
            for _ in range(processes):
                ours, theirs = Pipe()
                with theirs:
                    workers[ours] = _started(theirs)
                at_work[ours] = None
                # The path comes first: what follows may be of modules that are found only there.
                ours.send(sys.path)
                ours.send((run, simulate))
        while at_work:
            ready = wait(list(at_work), _REFRESH_S)
            if not ready:
                progress.refresh()
            for connection in ready:
                assert isinstance(connection, Connection)
                _serve(connection, workers[connection], at_work, left, progress)
    except BaseException:
        for worker in workers.values():
            worker.kill()
        raise
    finally:
        for connection, worker in workers.items():
            worker.wait()
            connection.close()
        remove_partial_trials(run)


def _serve(
    connection: "Connection[object, object]",
    worker: "subprocess.Popen[bytes]",
    at_work: "dict[Connection[object, object], SimulatedTrial | None]",
    left: deque[SimulatedTrial],
    progress: Progress,
) -> None:
    """Handle what a process says of its trial: how far it is, or that it has ended. Then it gets the next one."""
    own, following = at_work[connection], left[0] if left else None
    try:
        said = connection.recv()
        if own is not None and isinstance(said, float):
            progress.trial_is_at(own.id, said)
            return
        connection.send(following)
    except (EOFError, ConnectionError):
        raise _lost(own or following, worker) from None
    del at_work[connection]
    if isinstance(said, Exception):
        raise said
    if own is not None:
        progress.trial_ended_beside_others(own.values, own.variant.name, own.id)
    if following is not None:
        at_work[connection] = left.popleft()


def _started(connection: "Connection[object, object]") -> "subprocess.Popen[bytes]":
    command = module_command(_PROGRAM, str(os.getpid()), str(connection.fileno()))
    return subprocess.Popen(command, pass_fds=[connection.fileno()], stdin=subprocess.DEVNULL)


def _lost(trial: SimulatedTrial | None, worker: "subprocess.Popen[bytes]") -> TrialError:
    """Return the error for a process that has ended before its time."""
    status = worker.wait()
    killed = status == -signal.SIGKILL
    ending = "was killed: if memory ran out, give fewer --jobs" if killed else f"ended with status {status}"
    return TrialError(f"{trial or 'the last trial'}: the process that was to simulate it {ending}")


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold back what asks a process to end; processes that are started meanwhile hold it back for good."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
