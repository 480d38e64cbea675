"""Find the run that ``--resume`` continues, and tell what a run that ends early keeps for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wanbed.results.records.run_store import RunStore
from wanbed.results.text import count_text
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.continuable import check_continuable
from wanbed.runner.runs.run_folder import Log, latest_run


def resumed(experiment: Experiment, runs: Path, log: Log) -> RunStore | None:
    """Return the run that goes on, or that has all its trials already; None if a new one has to start.

    A complete run that has lost a trial since goes on, and is marked incomplete.
    Log a line if nothing goes on. Raise InputError if the folder of the run that goes on is damaged.
    """
    store = latest_run(experiment, runs)
    if store is None:
        log(f"--resume: {runs} holds no run of this file as it is now: a new one starts")
    elif not store.manifest["complete"]:
        check_continuable(experiment, store)
    elif missing := store.missing_trials():
        check_continuable(experiment, store)
        gone = count_text(len(missing), "trial")
        log(f"--resume: {store.path} was complete, and has lost {gone} since, which will run again")
        store.update_manifest({"complete": False})
    else:
        log(f"--resume: {store.path} is complete already, nothing is run again; without --resume a new one starts")
    return store


@contextmanager
def kept_trials(experiment: Experiment, store: RunStore) -> Iterator[None]:
    """Add a note to whatever ends the block early: how many trials the run keeps, and how to go on."""
    try:
        yield
    except BaseException as fault:
        trials = experiment.trials()
        finished = sum(store.has_trial(*trial) for trial in trials)
        kept = f"{store.path} keeps {finished} of {count_text(len(trials), 'trial')}"
        fault.add_note(f"{kept}: the same command with --resume goes on")
        raise
