"""Find the run that ``--resume`` continues, and tell what a run that ends early keeps for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wanbed.results.records.run_store import RunStore
from wanbed.results.text.number_text import count_text
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.continuable import check_continuable
from wanbed.runner.runs.run_folder import Log, latest_run


def resumed(experiment: Experiment, runs: Path, log: Log) -> RunStore | None:
    """Return the run that goes on, or that has all its trials already; None if a new one has to start.

    Log a line if nothing goes on. Raise InputError if the folder of the run that goes on is damaged.
    """
    store = latest_run(experiment, runs)
    if store is None:
        log(f"--resume: {runs} holds no run of this file as it is now: a new one starts")
    elif store.manifest["complete"]:
        log(f"--resume: {store.path} is complete already, nothing is run again; without --resume a new one starts")
    else:
        check_continuable(experiment, store)
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
