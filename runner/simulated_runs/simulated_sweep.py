"""The engine ``simulate``: run every trial of an experiment, on as many processes as are given, into a run's store.

The processes are started anew (``spawn``), so that they depend on nothing that this one holds. Each is handed one
trial at a time, writes it to the store itself, and dies with this process whatever ends it. They leave interrupts to
this process: what a terminal sends to all of them at once ends the sweep in one place.
"""

import os
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from results.records.run_store import RunStore, remove_partial_trials, write_trial
from runner.resolve.experiment import Experiment
from runner.runs.faults import TrialError
from runner.runs.progress import Progress
from runner.simulated_runs.simulated_trial import TrialSpec, simulated_record
from runner.simulator.deadlock import SimulationError
from runner.simulator.simulation import Simulate
from runner.simulator.variant_simulation import simulate_variant
from wanbed.own_modules import call
from workloads.parent_process import die_with_parent

_REFRESH_S = 0.5


def simulate_sweep(
    experiment: Experiment,
    store: RunStore,
    *,
    jobs: int,
    progress: Progress,
    simulate: Simulate = simulate_variant,
) -> None:
    """Simulate every trial that the store lacks, ``jobs`` at a time; one at a time needs no other process.

    Raises SimulationError, one line with sweep point and variant, for a schedule that fails or deadlocks, TrialError
    for a process that is killed, and OSError where the store cannot be written. Trials that had finished by then are in
    the store, and of the others nothing is left, running or half written.
    """
    pending = [
        TrialSpec.of(trial, point)
        for point in experiment.points()
        for trial in point.trials()
        if not store.has_trial(*trial)
    ]
    processes = min(jobs, len(pending))
    if processes > 1:
        _side_by_side(pending, store.path, processes, progress, simulate)
        return
    for trial in pending:
        progress.trial_started(trial.values, trial.id.variant, trial.id.repeat)
        fault = _simulate_into(store.path, trial, simulate)
        if fault is not None:
            raise fault
        progress.trial_ended_beside_others(trial.values, trial.variant.name)


def _simulate_into(run: Path, trial: TrialSpec, simulate: Simulate) -> Exception | None:
    """Simulate a trial and keep it; return a foreseen failure, to be raised where it can end the sweep."""
    try:
        write_trial(run, simulated_record(trial, simulate))
    except SimulationError as failure:
        return SimulationError(f"{trial}: {failure}")
    except MemoryError:
        return TrialError(f"{trial}: not enough memory to simulate it: give fewer --jobs, or a smaller experiment")
    except OSError as fault:
        return fault
    return None


def _side_by_side(
    pending: Sequence[TrialSpec], run: Path, processes: int, progress: Progress, simulate: Simulate
) -> None:
    left = deque(pending)
    at_work: dict[Connection, TrialSpec | None] = {}
    workers: dict[Connection, SpawnProcess] = {}
    context = get_context("spawn")
    try:
        with _signals_held():
            for _ in range(processes):
                ours, theirs = context.Pipe()
                worker = context.Process(target=call, args=(_work, os.getpid(), theirs, run, simulate), daemon=True)
                worker.start()
                theirs.close()
                workers[ours], at_work[ours] = worker, None
        while at_work:
            ready = wait(list(at_work), _REFRESH_S)
            if not ready:
                progress.refresh()
            for connection in ready:
                assert isinstance(connection, Connection)
                done, following = at_work.pop(connection), left.popleft() if left else None
                try:
                    fault = connection.recv()
                    connection.send(following)
                except (EOFError, ConnectionError):
                    raise _lost(done or following, workers[connection]) from None
                if fault is not None:
                    raise fault
                if done is not None:
                    progress.trial_ended_beside_others(done.values, done.variant.name)
                if following is not None:
                    at_work[connection] = following
    except BaseException:
        for worker in workers.values():
            worker.kill()
        raise
    finally:
        for connection, worker in workers.items():
            worker.join()
            connection.close()
        remove_partial_trials(run)


def _lost(trial: TrialSpec | None, worker: SpawnProcess) -> TrialError:
    """Return the error for a process that has ended before its time."""
    worker.join()
    killed = worker.exitcode == -signal.SIGKILL
    ending = "was killed: if memory ran out, give fewer --jobs" if killed else f"ended with status {worker.exitcode}"
    return TrialError(f"{trial or 'the last trial'}: the process that was to simulate it {ending}")


def _work(parent_pid: int, connection: Connection, run: Path, simulate: Simulate) -> None:
    die_with_parent(parent_pid)
    connection.send(None)
    while (trial := connection.recv()) is not None:
        connection.send(_simulate_into(run, trial, simulate))


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold back what asks a process to end; processes that are started meanwhile hold it back for good."""
    # Starting this helper of multiprocessing, as the first process would, lets signals through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
