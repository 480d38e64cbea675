"""Emulate an experiment in virtual time: the trials run in a guest, the run's folder and its progress are outside."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from wanbed.ground.strict_model import InputError
from wanbed.runner.emulation.virtual.virtual_clock import enter_virtual_time, status_of_inner
from wanbed.runner.emulation.virtual.virtual_patience import quiet_patience_s
from wanbed.runner.emulation.virtual.virtual_progress import VirtualProgress
from wanbed.runner.runs.run_folder import begin_run, check_runs_folder, exclusively, kept_trials, resumed
from wanbed.runner.runs.run_request import RunRequest
from wanbed.testbed.virtual_time.guest_boot import check_visible
from wanbed.testbed.virtual_time.kernel.kernel_cache import virtual_kernel
from wanbed.testbed.virtual_time.watchdog import Patience, Watch

INNER_RUN = "wanbed.runner.cli.inner_run"
"""The program that runs inside the guest; its argument is an ``InnerRun``."""


class InsideError(Exception):
    """Raised if the program inside the guest failed; it has printed the reason. ``status`` is its exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the run inside the virtual-time guest ended with status {status}")
        self.status = status


@dataclass(frozen=True)
class InnerRun:
    """The configuration of the program inside the guest.

    The experiment is the one that the manifest in the run's folder, ``store``, records. ``source`` names it in
    messages, and its relative paths begin at ``directory``.
    """

    store: str
    source: str
    directory: str

    def to_json(self) -> str:
        """Return the configuration as one argument of a command line."""
        return json.dumps(asdict(self))


def virtual_run(request: RunRequest) -> Path:
    """Run the trials inside the guest, and return the run's folder. It is made outside, where machine facts are known.

    Raise InsideError if the program inside the guest fails.
    """
    experiment, directory, runs = request.experiment, request.directory, request.runs
    kernel = virtual_kernel()
    facts = {"virtual_time": {"kernel": kernel.record.release, "configuration_hash": kernel.record.configuration_hash}}
    store = resumed(experiment, runs, request.log) if request.resume else None
    if store is not None and store.manifest["complete"]:
        return store.path
    if store is None:
        check_runs_folder(runs)
        check_visible(runs, "--runs")
        store = begin_run(experiment, runs, {"dilation": 1.0, **facts})
    elif store.manifest.get("virtual_time") != facts["virtual_time"]:
        raise InputError(f"--resume: {store.path} was begun on another virtual-time kernel: leave --resume out")
    measured = {
        directory / point.spec.compute.from_run
        for point in experiment.points()
        if point.spec.compute.from_run is not None
    }
    inner = InnerRun(str(store.path), request.source, str(directory))
    patience = Patience(quiet_virtual_s=quiet_patience_s(experiment))
    with (
        exclusively(store.path),
        kept_trials(experiment, store),
        VirtualProgress(experiment, store, stream=request.stream) as progress,
    ):
        ended = enter_virtual_time(
            kernel,
            INNER_RUN,
            [inner.to_json()],
            files=[directory, store.path, *sorted(measured)],
            standard_error=request.standard_error or progress.standard_error,
            watch=Watch(patience, progress.look),
        )
        status = status_of_inner(ended)
        progress.look()
        if status:
            raise InsideError(status)
    return store.path
