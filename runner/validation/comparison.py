"""Simulate every sweep point and variant of an emulated run, and compare simulated with measured iteration times."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wanbed.ground.errors import InputError
from wanbed.results.reading.headline import HeadlineRow, headline
from wanbed.results.reading.not_modelled import not_modelled_text
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import point_text
from wanbed.results.reading.validity import MachineLoad
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment, SweepPoint
from wanbed.runner.resolve.packet_draws import draws_packets
from wanbed.runner.runs.not_modelled import simulated_without
from wanbed.runner.simulator.simulation import Simulate
from wanbed.runner.trainings.program.resolution import ProgramVariant

OUTSIDE, SATURATED, RECOUNTED = "links outside tolerance", "machine saturated", "another number of connections"


@dataclass(frozen=True)
class VariantComparison:
    """One variant at one sweep point. Times are iteration times in seconds.

    ``emulated_s`` is the median over repeats, ``fastest_s`` and ``slowest_s`` are their range. ``simulated_s`` is
    computed from the experiment file alone. ``cautions`` lists what makes the emulated figure unreliable.
    """

    point: int
    values: Mapping[str, str]
    variant: str
    repeats: int
    emulated_s: float
    fastest_s: float
    slowest_s: float
    simulated_s: float
    cautions: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """``simulated_s / emulated_s - 1``. Above zero the simulated iteration is too slow."""
        return self.simulated_s / self.emulated_s - 1


def compare(run: Run, simulate: Simulate) -> tuple[VariantComparison, ...]:
    """Simulate every sweep point and variant with a finished trial, in the order of the run's trials.

    Raise InputError, one line, for a run that was not emulated with replayed compute, a run with links that the
    simulator does not model, and a run whose experiment this version resolves differently.
    """
    experiment = _experiment(run)
    points = {point.index: point for point in experiment.points()}
    known = {(point.index, variant.name) for point in points.values() for variant in point.variants}
    for trial in run.trials:
        if (trial.point, trial.variant) not in known:
            raise InputError(
                f"{run.path}: its experiment has no sweep point {trial.point} with variant "
                f"{trial.variant!r}, of which it has a trial: remove that trial's folder"
            )
    calibrated = run.calibrated_points
    return tuple(_compare(run, row, points[row.point], row.point in calibrated, simulate) for row in headline(run))


def _experiment(run: Run) -> Experiment:
    here = str(run.path)
    document = run.manifest.get("experiment")
    if not isinstance(document, Mapping):
        raise InputError(f"{here}: its manifest holds no experiment: give the folder of a run")
    if run.manifest.get("engine") != "emulate":
        raise InputError(f"{here}: it was not emulated: give a run of wanbed run")
    experiment = parse_experiment(document, f"{here}: its experiment", Path(run.path))
    for point in experiment.points():
        if any(isinstance(variant, ProgramVariant) for variant in point.variants):
            raise InputError(f"{here}: what a program computes takes no time that is known: give a run of schedules")
        if (backend := point.spec.compute.backend).real_time:
            raise InputError(
                f"{here}: what {backend.title} computes takes no time that is known: give a run of replayed compute"
            )
        if without := simulated_without(point.spec, point.topology):
            at = f" at {where}" if (where := point_text(point.values)) else ""
            raise InputError(
                f"{here}: the simulator does not model {not_modelled_text(without)}{at}, or not within what was "
                "validated: give a run without that"
            )
        if not _is_what_ran(point, run.manifest):
            raise InputError(
                f"{here}: this version resolves sweep point {point.index} to something else than was run: run it "
                "again, or validate with the version that ran it"
            )
    return experiment


def _is_what_ran(point: SweepPoint, manifest: Mapping[str, Any]) -> bool:
    """Return whether the sweep point still resolves to what the manifest records. New fields are ignored."""
    ran: Mapping[str, Any] = next(
        (entry for entry in manifest.get("sweep_points", ()) if entry.get("index") == point.index), {}
    )
    return _contains(point.resolved(), {"wan": ran.get("wan"), "variants": ran.get("variants")})


def _contains(resolved: Any, recorded: Any) -> bool:
    if isinstance(recorded, Mapping):
        return isinstance(resolved, Mapping) and all(
            name in resolved and _contains(resolved[name], value) for name, value in recorded.items()
        )
    if isinstance(recorded, list):
        return (
            isinstance(resolved, list | tuple)
            and len(recorded) == len(resolved)
            and all(_contains(one, other) for one, other in zip(resolved, recorded, strict=True))
        )
    return bool(recorded == resolved)


def _compare(run: Run, row: HeadlineRow, point: SweepPoint, calibrated: bool, simulate: Simulate) -> VariantComparison:
    variant = next(variant for variant in point.variants if variant.name == row.variant)
    if row.times.median_s is None or row.times.fastest_s is None or row.times.slowest_s is None:
        raise InputError(f"{run.path}: the trials of {variant.name!r} hold no measured iteration")
    trials = [trial for trial in run.trials if (trial.point, trial.variant) == (row.point, row.variant)]
    dilation = float(run.manifest.get("dilation") or 1)
    # Where compute times or losses are drawn, each repeat has its own.
    drawn = variant.varies or draws_packets(point.topology, variant.transport)
    repeats = [trial.repeat for trial in trials] if drawn else [0]
    simulations = [
        simulate(point.topology, variant.in_repeat(repeat), point.iterations(variant), dilation=dilation)
        for repeat in repeats
    ]
    warmup = point.spec.training.warmup
    if not all(each.measured_iterations(warmup) for each in simulations):
        raise InputError(
            f"{run.path}: simulated, no measured iteration of {variant.name!r} ends while all jobs train: give more "
            "iterations"
        )
    simulated_ns = np.median([each.iteration_time_ns(warmup) for each in simulations])
    cautions = {
        OUTSIDE: not calibrated,
        SATURATED: any(MachineLoad.of(trial.facts).saturated for trial in trials),
        RECOUNTED: any(
            _connections(trial.facts) not in {None, frozenset(simulations[0].connections.items())} for trial in trials
        ),
    }
    return VariantComparison(
        point=row.point,
        values=row.values,
        variant=row.variant,
        repeats=row.repeats,
        emulated_s=row.times.median_s,
        fastest_s=row.times.fastest_s,
        slowest_s=row.times.slowest_s,
        simulated_s=float(simulated_ns) / 1e9,
        cautions=tuple(caution for caution, holds in cautions.items() if holds),
    )


def _connections(facts: Mapping[str, Any]) -> frozenset[tuple[tuple[str, str], int]] | None:
    """Return the number of connections of each pair of hosts in a trial, None if its facts lack them."""
    counted = facts.get("connections")
    return None if counted is None else frozenset(((one, other), count) for one, other, count in counted)
