"""Resolve a variant of the experiment file into one that can run: fill in defaults and check that it fits."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from wanbed.ground.strict_model import InputError
from wanbed.runner.companions.prefill.resolution.prefill_resolution import with_service
from wanbed.runner.experiment.compute_spec import TRACE_SCHEDULE
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.resolve.checks.optimizer_waits import waits_for_all
from wanbed.runner.resolve.job_hosts import job_topologies
from wanbed.runner.resolve.pipeline_resolution import Choose, resolve_pipeline
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.replica_resolution import check_matches
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.variants_at_once import variants_at_once
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.trainings.program.resolution.program_resolution import resolve_program
from wanbed.runner.trainings.trace.resolution.trace_resolution import resolve_trace
from wanbed.testbed.network.topology import Topology

OTHER_RESOLUTIONS: Mapping[str, Callable[[WrittenVariant], ResolvedVariant]] = {TRACE_SCHEDULE: resolve_trace}
"""The function that resolves a variant whose ``schedule`` is of no pipelines. It raises InputError if it cannot run."""


def resolve_variants(
    spec: ExperimentSpec, topology: Topology, directory: Path, choose: Choose, values: Mapping[str, str]
) -> tuple[ResolvedVariant, ...]:
    """Return the variants of a sweep point with these swept values, resolved.

    Raise InputError for a variant that cannot run, and if two schedules train on different numbers of sequences an
    iteration, because they could not be compared. How many a program trains on is not known.
    """
    own = dict(zip([job.name for job in spec.jobs], job_topologies(spec.jobs, topology), strict=True))
    written = [WrittenVariant(spec, position, topology, directory, values) for position in range(len(spec.variants))]
    written = [each if each.job is None else replace(each, topology=own[each.job.name]) for each in written]
    resolved = tuple(with_service(resolve_variant(each, choose), each) for each in written)
    pipelines = {position: each for position, each in enumerate(resolved) if isinstance(each, PipelineVariant)}
    for position, variant in pipelines.items():
        first = next(iter(pipelines.values()))
        if variant.sequences_per_iteration != first.sequences_per_iteration:
            raise InputError(
                f"variants.{position}.training: {variant.pipelines} pipelines of {variant.microbatches} "
                f"microbatches train on {variant.sequences_per_iteration} sequences an iteration, "
                f"{first.name!r} on {first.sequences_per_iteration}: to be compared they need the same"
            )
    check_matches(spec, [variant.placement for variant in resolved])
    return (*resolved, *variants_at_once(spec.jobs, tuple(pipelines.values()))) if spec.jobs else resolved


def resolve_variant(written: WrittenVariant, choose: Choose) -> ResolvedVariant:
    """Return the variant, resolved. Raise InputError if it cannot run."""
    # Refused where nobody can wait.
    waits_for_all(written)
    if written.variant.program is not None:
        return resolve_program(written, written.variant.program)
    resolve = OTHER_RESOLUTIONS.get(written.variant.schedule)
    return resolve_pipeline(written, choose) if resolve is None else resolve(written)
