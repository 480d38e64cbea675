"""Emulate an experiment in virtual time: the trials run in a guest, the run's folder and its progress are outside.

A run is stuck if the virtual time until the end of its next trial is beyond a bound, which assumes that everything in a
trial runs one after the other. No trial that makes progress is slower. The bound may be loose: a stuck run reaches any
bound soon, because nothing slows down its clock.
"""

import io
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from wanbed.ground.errors import InputError
from wanbed.results.records.run_store import RunStore
from wanbed.results.records.trial_id import TrialId
from wanbed.runner.emulation.virtual_clock import enter_virtual_time, status_of_inner
from wanbed.runner.resolve.connections import window_bps
from wanbed.runner.resolve.experiment import Experiment, SweepPoint
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.runs.progress import Progress
from wanbed.runner.runs.run_folder import begin_run, check_runs_folder, exclusively, kept_trials, resumed
from wanbed.runner.runs.run_request import RunRequest
from wanbed.testbed.virtual_time.guest_boot import check_visible
from wanbed.testbed.virtual_time.kernel_cache import virtual_kernel
from wanbed.testbed.virtual_time.watchdog import Patience, Watch

_INNER_RUN = "wanbed.runner.cli.inner_run"
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
            _INNER_RUN,
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


BESIDE_TRIALS_S = 3600.0
"""Virtual time for bring-up, calibration and everything else outside trials."""

MARGIN = 3

_SEGMENT_BITS = 8 * 1448

_ROUND_TRIPS = 30
"""Additional round trips of a transfer: slow start up to any window that fits in memory, and acknowledgement."""


def quiet_patience_s(experiment: Experiment) -> float:
    """Return the most virtual seconds between the ends of two trials in a run of this experiment."""
    trials = [serial_trial_s(point, variant) for point in experiment.points() for variant in point.variants]
    return BESIDE_TRIALS_S + MARGIN * max(trials, default=0.0)


def serial_trial_s(point: SweepPoint, variant: ResolvedVariant) -> float:
    """Return an upper bound in seconds for one trial: all compute, then all transfers on the slowest path."""
    seconds_per_bit, rtt_s = _slowest_path(point, variant)

    def transfer_s(size_bytes: int) -> float:
        return 8 * size_bytes * seconds_per_bit + _ROUND_TRIPS * rtt_s

    return point.iterations(variant) * variant.serial_s(transfer_s)


def _slowest_path(point: SweepPoint, variant: ResolvedVariant) -> tuple[float, float]:
    """Return the most seconds per bit, and per round trip, of one connection between any two ranks."""
    topology, home = point.topology, point.topology.datacenters[0].name
    paths = [topology.path(home, home)]
    for one, other in variant.pairs:
        ends = (one.datacenter, other.datacenter)
        paths += [topology.path(*ends), topology.path(*ends[::-1])]
    longest_ns = max(path.latency_ns + 4 * path.impairments.delay_spread_ns for path in paths)
    rtt_s = 2 * longest_ns / 1e9
    slowest = [1 / window_bps(variant.transport, 2 * path.latency_ns) for path in paths]
    slowest += [1 / path.pair_rate_bps for path in paths if path.pair_rate_bps is not None]
    # Mathis et al., "The macroscopic behavior of the TCP congestion avoidance algorithm", 1997.
    slowest += [rtt_s * sqrt(2 * path.impairments.loss / 3) / _SEGMENT_BITS for path in paths]
    return max(slowest), rtt_s


class VirtualProgress:
    """Report the trials that appear in a run's folder, to ``stream`` and by ``clock`` as ``Progress`` does.

    Use it as a context manager. ``standard_error`` takes what the guest prints meanwhile.
    """

    def __init__(
        self,
        experiment: Experiment,
        store: RunStore,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._points = {point.index: point.values for point in experiment.points()}
        trials = experiment.trials()
        self._left = [trial for trial in trials if not store.has_trial(*trial)]
        self._running: TrialId | None = None
        finished = len(trials) - len(self._left)
        self._progress = Progress(len(trials), finished, pending=self._left, stream=stream, clock=clock)
        self.standard_error = _LinesAbove(self._progress)

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.standard_error.close()
        self._progress.__exit__(kind, fault, trace)

    def look(self) -> int:
        """Report what is new since the last look, and that time passes; return how full the folder is."""
        calibrated = {point for point in self._points if self._store.has_calibration(point)}
        while self._left and self._store.has_trial(*self._left[0]):
            self._begin(self._left.pop(0))
            self._running = None
            self._progress.trial_finished()
        if self._left and self._left[0].point in calibrated:
            self._begin(self._left[0])
        self._progress.refresh()
        return len(calibrated) - len(self._left)

    def _begin(self, trial: TrialId) -> None:
        if trial != self._running:
            self._running = trial
            self._progress.trial_started(self._points[trial.point], trial.variant, trial.repeat)


class _LinesAbove(io.BytesIO):
    """A stream that prints whole lines above a progress bar, and what is left when it is closed."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress
        self._held = b""

    def write(self, data: Any, /) -> int:
        """Print the lines that are complete now."""
        added = bytes(data)
        lines, newline, self._held = (self._held + added).rpartition(b"\n")
        if newline:
            self._progress.print_above((lines + newline).decode(errors="replace"))
        return len(added)

    def close(self) -> None:
        """Print what is left."""
        if self._held:
            self._progress.print_above(self._held.decode(errors="replace"))
            self._held = b""
        super().close()
