"""Resolve an experiment: every sweep point of its sweep is worked out and checked before anything runs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from wanbed.ground.errors import InputError, prefixed
from wanbed.results.records.trial_id import TrialId
from wanbed.runner.companions.background.resolution import resolve_background
from wanbed.runner.companions.faults.resolution import FaultPlan, resolve_faults
from wanbed.runner.companions.losses.resolution import resolve_text
from wanbed.runner.experiment.experiment_document import ExperimentDocument
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.sweep import MAX_TRIALS, SweepPointSpec, sweep_point_specs
from wanbed.runner.resolve.connections import NetworkDemand, network_demand
from wanbed.runner.resolve.packet_draws import draws_packets
from wanbed.runner.resolve.pipeline_resolution import Choose
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.refusals import check_point, check_variants
from wanbed.runner.resolve.resolved_variant import BackgroundFlow, ResolvedVariant
from wanbed.runner.resolve.stage_costs import profile_conditions
from wanbed.runner.resolve.variant_resolution import resolve_variants
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.profiles.compute_profile import MeasuredConditions

MAX_PLACES = 10_000_000
"""The most hosts and placed stages, each a few hundred bytes, in all sweep points and variants of a run together."""

MAX_TRACE_CHARACTERS = 16 * 2**20
"""The longest traces of links of all sweep points together: a run's manifest has them."""


@dataclass(frozen=True)
class SweepPoint:
    """One combination of swept values, with nothing left to default.

    ``values`` holds the swept values as text by path, {} without a sweep; ``variants`` the things compared, whose names
    are the same in every sweep point of a run. ``text`` is the corpus or file that the model learns from, None for
    synthetic tokens. ``profile_conditions`` are those of the measured compute profile that gives the times, None
    without one. ``faults`` is what fails in each trial.
    """

    index: int
    values: Mapping[str, str]
    spec: ExperimentSpec
    topology: Topology
    variants: tuple[ResolvedVariant, ...]
    text: str | None
    profile_conditions: MeasuredConditions | None = None
    faults: FaultPlan = field(default_factory=FaultPlan)

    @property
    def tokens_per_iteration(self) -> int | None:
        """Tokens trained on in one iteration, by every schedule: its sequences times the model's context.

        None without a model or a schedule.
        """
        model, scheduled = self.spec.model, self.scheduled
        return None if model is None or not scheduled else scheduled[0].sequences_per_iteration * model.context

    def tokens_of(self, variant: ResolvedVariant) -> int | None:
        """Return the tokens that a variant trains on in one iteration, None if it follows no schedule."""
        return self.tokens_per_iteration if isinstance(variant, PipelineVariant) else None

    @property
    def scheduled(self) -> tuple[PipelineVariant, ...]:
        """The variants that follow a schedule."""
        return tuple(variant for variant in self.variants if isinstance(variant, PipelineVariant))

    @property
    def real_time(self) -> bool:
        """Tell whether something computes in real time here, which no clock and no dilation changes."""
        return self.spec.compute.backend.real_time or any(
            isinstance(variant, ProgramVariant) for variant in self.variants
        )

    @property
    def background(self) -> tuple[BackgroundFlow, ...]:
        """The traffic that shares the WAN with each trial, and trains nothing."""
        return self.variants[0].background

    @property
    def demands(self) -> list[NetworkDemand]:
        """The demand on the network of each variant, with those that run beside it and the background."""
        at_once = [(variant, *variant.beside) for variant in self.variants]
        flows = [flow.ends for flow in self.background]
        return [
            network_demand(self.topology, [*(pair for each in group for pair in each.pairs), *flows])
            for group in at_once
        ]

    @property
    def demand(self) -> NetworkDemand:
        """The largest of ``demands``."""
        return max(self.demands, key=lambda demand: demand.total_bps)

    @property
    def repeats(self) -> int:
        """The number of times each variant is run: 1 in a simulation that gives the same every time."""
        if self.spec.engine != "simulate" or self.spec.compute.varies:
            return self.spec.repeats
        drawn = any(draws_packets(self.topology, variant.transport) for variant in self.variants)
        return self.spec.repeats if drawn else 1

    def trials(self) -> list[TrialId]:
        """Return the trials of this sweep point in the order in which they run: all variants in turn, repeat by repeat.

        Interleaving lets a machine that drifts drift alike for all variants.
        """
        return [
            TrialId(self.index, variant.name, repeat) for repeat in range(self.repeats) for variant in self.variants
        ]

    def iterations(self, variant: ResolvedVariant) -> int:
        """Return the number of iterations of a trial of that variant, warm-up included."""
        return variant.iterations or self.spec.training.iterations

    def variant(self, name: str) -> ResolvedVariant:
        """Return the variant of that name."""
        return next(variant for variant in self.variants if variant.name == name)

    def resolved(self) -> dict[str, Any]:
        """Return what runs here, beyond what ``spec`` says, in plain JSON types: working units, no references."""
        return {
            "wan": [document for link in self.topology.wan for document in link.documents()],
            "variants": {variant.name: variant.document() for variant in self.variants},
        }


@dataclass(frozen=True)
class Experiment:
    """A file with its overrides applied, all of whose sweep points can run as far as pure checks go."""

    spec: ExperimentSpec
    resolved_points: tuple[SweepPoint, ...]

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.spec.name

    def points(self) -> tuple[SweepPoint, ...]:
        """Return a sweep point for every combination of the swept values, one sweep point where nothing is swept."""
        return self.resolved_points

    @property
    def repeats(self) -> int:
        """The number of times each variant is run at a sweep point, at most."""
        return max(point.repeats for point in self.resolved_points)

    def trials(self) -> list[TrialId]:
        """Return every trial in the order in which they run: sweep point by sweep point."""
        return [trial for point in self.points() for trial in point.trials()]

    def document(self) -> dict[str, Any]:
        """Return the resolved configuration in plain JSON types.

        ``parse_experiment`` makes an equal experiment of it.
        """
        return self.spec.document()

    @cached_property
    def config_hash(self) -> str:
        """SHA-256 over the resolved configuration and what its sweep points resolve to, hexadecimal.

        The same whatever the order of keys in the file and however a quantity or default was written; another one when
        a profile that is named gives other figures. ``name`` counts as well.
        """
        # The key that hashes of runs by earlier versions were made with: they stay the same.
        content = {"experiment": self.document(), "cells": [point.resolved() for point in self.points()]}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return sha256(text.encode()).hexdigest()


def resolve_experiment(document: ExperimentDocument, choose: Choose, *, trains: bool = True) -> Experiment:
    """Resolve an experiment from its document.

    ``choose`` finds the places that the document leaves open; ``trains`` is False where it is read for its network
    alone. Raises InputError: one line with source, field and remedy.
    """
    document = _with_run_located(document)
    spec, source = document.spec, document.source
    points: list[SweepPoint] = []
    traces: dict[str, str] = {}
    places = 0
    for point in sweep_point_specs(document):
        places += len(point.topology.hosts)
        _check_places(places, f"{source}: topology.datacenters")
        with prefixed(f"{point.source}: "):
            resolved = _resolve_point(point, document.directory, choose, trains=trains)
        places += sum(len(variant.placement.places) for variant in resolved.variants)
        _check_places(places, f"{source}: training.stages")
        points.append(resolved)
        traces |= point.traces
        _check_traces(traces, source)
    trials = sum(len(point.variants) for point in points) * spec.repeats
    if trials > MAX_TRIALS:
        raise InputError(
            f"{source}: repeats: {trials} trials at all points of all variants, more than the {MAX_TRIALS} of one "
            "run: give fewer repeats, or split the run"
        )
    return Experiment(spec.model_copy(update={"traces": traces}), tuple(points))


def _with_run_located(document: ExperimentDocument) -> ExperimentDocument:
    """Return the document with the whole path of the run ``compute.from``: a run's folder keeps the fields alone."""
    compute = document.fields.get("compute")
    if not isinstance(compute, Mapping):
        return document
    run = compute.get("from")
    if not isinstance(run, str) or not run.strip():
        return document
    located = {**compute, "from": str((document.directory / run).resolve())}
    return replace(document, fields={**document.fields, "compute": located})


def _check_traces(traces: Mapping[str, str], source: str) -> None:
    if sum(map(len, traces.values())) > MAX_TRACE_CHARACTERS:
        raise InputError(
            f"{source}: topology: the traces of all links and sweep points together have more than "
            f"{MAX_TRACE_CHARACTERS >> 20} MiB, which every run keeps: give shorter ones, or split the sweep"
        )


def _check_places(places: int, field: str) -> None:
    if places > MAX_PLACES:
        raise InputError(
            f"{field}: {places} hosts and GPUs that compute a stage, over all sweep points and variants, more than "
            f"{MAX_PLACES}: give fewer hosts, sweep points or variants"
        )


def _resolve_point(point: SweepPointSpec, directory: Path, choose: Choose, *, trains: bool) -> SweepPoint:
    spec = point.spec
    check_point(point, trains=trains)
    variants = resolve_variants(spec, point.topology, directory, choose, point.values)
    check_variants(point, variants, trains=trains)
    faults = resolve_faults(point, variants, directory, choose)
    if trains and (background := resolve_background(point)):
        variants = tuple(replace(variant, background=background) for variant in variants)
    return SweepPoint(
        point.index,
        point.values,
        spec,
        point.topology,
        variants,
        resolve_text(spec, directory),
        profile_conditions(spec, directory),
        faults,
    )
