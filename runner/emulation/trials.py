"""Run all trials of an emulated run that its folder lacks, and report their progress."""

from typing import TextIO

from wanbed.results.records.run_store import RunStore
from wanbed.results.text import count_text
from wanbed.runner.emulation.emulation import emulate
from wanbed.runner.emulation.networks.kept_testbed import NetworkOf
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.progress import Progress
from wanbed.runner.runs.run_folder import Log


def run_trials(
    experiment: Experiment,
    store: RunStore,
    *,
    network_of: NetworkOf,
    log: Log,
    keep_gradients: bool = False,
    keep_going: bool = False,
    stream: TextIO | None = None,
) -> None:
    """Run the trials at the dilation that the manifest gives, and mark the run complete.

    The progress goes to ``stream`` (default: standard error).

    Raises what ``emulate`` raises; trials that had finished by then are in the store.
    """
    trials = experiment.trials()
    pending = [trial for trial in trials if not store.has_trial(*trial)]
    finished = len(trials) - len(pending)
    log(f"{store.path}: {count_text(len(trials), 'trial')}, {finished} of them finished before")
    with Progress(len(trials), finished, pending=pending, stream=stream) as progress:
        emulate(
            experiment,
            store,
            dilation=float(store.manifest["dilation"]),
            network_of=network_of,
            progress=progress,
            log=log,
            keep_gradients=keep_gradients,
            keep_going=keep_going,
        )
        store.finish()
