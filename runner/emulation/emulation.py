"""The engine ``emulate``: run each sweep point of an experiment on the testbed of its network, trial by trial.

A network stays up from one sweep point to the next, as long as that has the same network.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

from wanbed.results.reading.stored_trial import FAILED
from wanbed.results.reading.validity import SATURATION_REMEDY, MachineLoad, WaysAround
from wanbed.results.records.run_store import RunStore, TrialRecord
from wanbed.results.records.trial_id import TrialId
from wanbed.results.text import count_text
from wanbed.runner.companions.background.on_hosts import use_tcp_of_flows
from wanbed.runner.companions.faults.on_hosts import fault_lines
from wanbed.runner.emulation.measured_network import Calibration, calibrated, read_network, remember_network
from wanbed.runner.emulation.running_trial import TrialSpec
from wanbed.runner.emulation.training import use_tcp_of_jobs
from wanbed.runner.emulation.trial import run_trial
from wanbed.runner.resolve.connections import count_connections
from wanbed.runner.resolve.experiment import Experiment, SweepPoint
from wanbed.runner.runs.faults import TrialError
from wanbed.runner.runs.progress import Progress
from wanbed.runner.runs.run_folder import Log
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.testbed.hosts.ping import MeasurementError
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.testbed.substrate.substrate import SubstrateError


class PointNetwork(Protocol):
    """The network of a sweep point, not yet up. Equal ones have the same links, hosts, machines and devices."""

    def up(self, dilation: float) -> AbstractContextManager[RunningTestbed]:
        """Bring it up, dilated by a factor, for the duration of a ``with`` block."""


NetworkOf = Callable[[SweepPoint], PointNetwork]
"""Returns the network of a sweep point."""


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


def emulate(
    experiment: Experiment,
    store: RunStore,
    *,
    dilation: float,
    network_of: NetworkOf,
    progress: Progress,
    log: Log,
    keep_gradients: bool = False,
    keep_going: bool = False,
) -> None:
    """Run every trial that the store lacks.

    With ``keep_gradients`` the run's folder ``gradients`` receives those of each trial's last iteration. With
    ``keep_going`` a trial that fails is kept, marked, and the next one runs on a network that is brought up anew. What
    the experiment lets fail ends no run in any case.

    A network stays up from one sweep point to the next if that has the same one, and its links are then not measured
    again as long as their calibration holds. It is brought up anew after a trial that may have changed it.

    The links of each sweep point are calibrated before its first trial. Raises TrialError, and what bringing up a
    testbed and measuring it raise; trials that had finished by then are in the store.
    """
    trials = _Trials(store, dilation, progress, log, keep_gradients=keep_gradients, keep_going=keep_going)
    calibration: Calibration | None = None
    with kept_testbed(dilation) as kept:
        for point in experiment.points():
            pending = [trial for trial in point.trials() if not store.has_trial(*trial)]
            while pending:
                testbed = kept.of(network_of(point))
                reported = read_network(testbed)
                remember_network(store, point, testbed, reported)
                calibration = calibrated(store, point, testbed, reported, calibration, dilation=dilation, log=log)
                if not trials.run(testbed, point, pending):
                    kept.take_down()


@dataclass(frozen=True)
class _Trials:
    """The settings and tools that all trials of a run have in common."""

    store: RunStore
    dilation: float
    progress: Progress
    log: Log
    keep_gradients: bool
    keep_going: bool

    def run(self, testbed: RunningTestbed, point: SweepPoint, pending: list[TrialId]) -> bool:
        """Run trials of a sweep point and take them off ``pending``, until one has failed although nothing was to fail.

        Return whether the network is certain to be as it was before them.
        """
        as_it_was, goes_on = True, True
        while pending and goes_on:
            trial = pending.pop(0)
            self.progress.trial_started(point.values, trial.variant, trial.repeat)
            gradients = _gradients_folder(self.store, trial) if self.keep_gradients else None
            failed = _folder_of(self.store, trial, "failed")
            connections = _connections(point, trial)
            spec = TrialSpec(trial, point, self.dilation, connections, gradients, failed, keeps_going=self.keep_going)
            record = _record(testbed, spec, self.progress.refresh)
            self.store.write_trial(record)
            goes_on = not _ended_unplanned(record.facts)
            as_it_was = as_it_was and not _may_change_its_network(spec, record)
            if goes_on:
                _forget(self.store, failed)
            self.progress.trial_finished()
            for line in _remarks(spec, record):
                self.log(f"{trial.variant}, repeat {trial.repeat}: {line}")
        return as_it_was


def _connections(point: SweepPoint, trial: TrialId) -> dict[tuple[str, str], int]:
    variant = point.variant(trial.variant)
    # A program makes its own connections.
    pairs = variant.pairs if not isinstance(variant, ProgramVariant) else ()
    return count_connections(point.topology, pairs, variant.transport)


def _record(testbed: RunningTestbed, trial: TrialSpec, meanwhile: Callable[[], None]) -> TrialRecord:
    """Run a trial. If it fails and others are to run, return a record that says so, in place of the error."""
    try:
        use_tcp_of_jobs(testbed, trial.variant)
        use_tcp_of_flows(testbed, trial.point.background)
        return run_trial(testbed, trial, meanwhile)
    except (TrialError, SubstrateError, MeasurementError, OSError) as failure:
        if not trial.keeps_going:
            raise
        return _failed_record(trial, str(failure))


def _may_change_its_network(trial: TrialSpec, record: TrialRecord) -> bool:
    """Return whether something failed in a trial, planned or not, or a user's program ran, which may do anything."""
    failed = trial.point.faults or record.facts.get("faults") or record.facts.get("prefill", {}).get("faults")
    return bool(failed) or isinstance(trial.variant, ProgramVariant)


def _remarks(trial: TrialSpec, record: TrialRecord) -> Iterator[str]:
    """Yield what the user should know of a trial: what ended or delayed it, and whether the machine kept up."""
    yield from record.facts.get("prefill", {}).get("faults", ())
    yield from fault_lines(record.facts.get("faults"))
    if around := WaysAround.of(record.facts).sentence:
        yield f"{around}: do not compare its figures; see docs/rack.md for the ways, and shut them"
    if saturated := MachineLoad.of(record.facts).sentence:
        yield f"{saturated}: {SATURATION_REMEDY}"


def _folder_of(store: RunStore, trial: TrialId, what: str) -> Path:
    """Return where the run keeps ``what`` of a trial, apart from finished trials."""
    return store.path / what / store.trial_path(*trial).relative_to(store.path / "trials")


def _forget(store: RunStore, folder: Path) -> None:
    """Remove what an earlier try of a trial has left, and the folders above it that nothing else is in."""
    shutil.rmtree(folder, ignore_errors=True)
    for above in folder.parents:
        if above == store.path or not above.is_dir() or any(above.iterdir()):
            return
        above.rmdir()


def _gradients_folder(store: RunStore, trial: TrialId) -> Path:
    folder = _folder_of(store, trial, "gradients")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class _KeptTestbed:
    """The testbed that is up, if one is. ``up`` takes it down at its end."""

    def __init__(self, up: ExitStack, dilation: float) -> None:
        self._up = up
        self._dilation = dilation
        self._network: PointNetwork | None = None
        self._testbed: RunningTestbed | None = None

    def of(self, network: PointNetwork) -> RunningTestbed:
        """Return the testbed of a network: the one that is up if it is the same network, else one in its place."""
        if self._testbed is None or self._network != network:
            self.take_down()
            self._testbed, self._network = self._up.enter_context(network.up(self._dilation)), network
        return self._testbed

    def take_down(self) -> None:
        """Take down what is up, so that the next network is brought up anew."""
        self._testbed = None
        self._up.close()


@contextmanager
def kept_testbed(dilation: float) -> Iterator[_KeptTestbed]:
    """Yield a testbed of which nothing is up yet, and nothing after the block. Networks are dilated by ``dilation``."""
    with ExitStack() as up:
        yield _KeptTestbed(up, dilation)


def _ended_unplanned(facts: Mapping[str, Any]) -> bool:
    """Return whether a trial's record says that it failed without a planned fault: its network may be broken."""
    faults = facts.get("faults")
    return faults is not None and faults["outcome"] == FAILED and not faults["planned"]


def _failed_record(trial: TrialSpec, reason: str) -> TrialRecord:
    """Return the record of a trial of which nothing is left but why it failed."""
    training = trial.point.spec.training
    return TrialRecord(
        trial.id,
        (),
        facts={
            "warmup_iterations": training.warmup,
            "tokens_per_iteration": trial.point.tokens_of(trial.variant),
            "dilation": trial.dilation,
            "faults": {
                "outcome": FAILED,
                "planned": False,
                "reason": reason,
                "recovery": "none",
                "iterations_planned": training.iterations,
                "disturbances": [],
            },
        },
    )
