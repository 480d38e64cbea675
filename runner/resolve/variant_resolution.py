"""Resolve the variants of a sweep point, each alone and beside those of other jobs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import KnownName
from wanbed.results.text import list_text
from wanbed.runner.companions.prefill.resolution import with_service
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.job_spec import JobSpec
from wanbed.runner.experiment.quantities import MAX_NAME_LENGTH
from wanbed.runner.resolve.fields_in_use import check_variant_in_use
from wanbed.runner.resolve.pipeline_resolution import Choose, resolve_pipeline, waits_for_all
from wanbed.runner.resolve.pipeline_variant import AmongJobs, PipelineVariant
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.trainings.registry import training_layer
from wanbed.testbed.network.topology import Topology


def resolve_variants(
    spec: ExperimentSpec, topology: Topology, directory: Path, choose: Choose, values: Mapping[str, str]
) -> tuple[ResolvedVariant, ...]:
    """Return the variants of a sweep point with these swept values, resolved.

    Raise InputError for a variant that cannot run, and if two schedules train on different numbers of sequences an
    iteration, because they could not be compared. How many a program trains on is not known.
    """
    own = dict(zip([job.name for job in spec.jobs], _job_topologies(spec.jobs, topology), strict=True))
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
    return (*resolved, *_variants_at_once(spec.jobs, tuple(pipelines.values()))) if spec.jobs else resolved


def resolve_variant(written: WrittenVariant, choose: Choose) -> ResolvedVariant:
    """Return the variant, resolved. Raise InputError if it cannot run."""
    # Refused where nobody can wait.
    waits_for_all(written)
    training = training_layer(written.variant.schedule, "resolution")
    if training is None:
        return resolve_pipeline(written, choose)
    resolved: ResolvedVariant = training.resolve(written)
    check_variant_in_use(written)
    return resolved


def job_datacenters(jobs: Sequence[JobSpec], topology: Topology) -> Iterator[KnownName]:
    """Yield the datacenters that jobs have hosts in."""
    known = [datacenter.name for datacenter in topology.datacenters]
    for position, job in enumerate(jobs):
        for name in job.hosts:
            otherwise = f"there are {', '.join(known)}"
            yield KnownName(f"jobs.{position}.hosts", name, known, f"no datacenter {name!r}", otherwise)


def _job_topologies(jobs: Sequence[JobSpec], topology: Topology) -> tuple[Topology, ...]:
    """Return for each job the network with the job's hosts alone, in every datacenter the first that are free.

    Hosts that do not train belong to no job. Raise InputError for too many hosts.
    """
    taken = {datacenter.name: 0 for datacenter in topology.datacenters}
    found = []
    for position, job in enumerate(jobs):
        datacenters = []
        for datacenter in topology.datacenters:
            first, count = taken[datacenter.name], job.hosts.get(datacenter.name, 0)
            training = [host for host in datacenter.hosts if host.trains]
            if first + count > len(training):
                raise InputError(
                    f"jobs.{position}.hosts.{datacenter.name}: {count} hosts, where {len(training) - first} of "
                    f"{len(training)} are left: add hosts to the datacenter, or give fewer"
                )
            taken[datacenter.name] = first + count
            datacenters.append(replace(datacenter, hosts=tuple(training[first : first + count])))
        found.append(replace(topology, datacenters=tuple(datacenters)))
    return tuple(found)


_MAX_COMBINATIONS = 100


def _variants_at_once(jobs: Sequence[JobSpec], alone: Sequence[PipelineVariant]) -> tuple[PipelineVariant, ...]:
    """Return each variant once more for every combination of one variant of each job, beside the others.

    Those of one combination follow each other, in order of the jobs. Raise InputError for too many combinations, and
    for names that are too long or clash.
    """
    by_name: Mapping[str, PipelineVariant] = {variant.name: variant for variant in alone}
    combinations = list(product(*(job.variants for job in jobs)))
    if len(combinations) > _MAX_COMBINATIONS:
        raise InputError(
            f"jobs: {len(combinations)} combinations of a variant of each job, more than {_MAX_COMBINATIONS}: give "
            "jobs fewer variants"
        )
    found: list[PipelineVariant] = []
    for names in combinations:
        members = [by_name[name] for name in names]
        for position, variant in enumerate(members):
            others = tuple(members[:position] + members[position + 1 :])
            name = f"{variant.name} beside {list_text([other.name for other in others])}"
            if len(name) > MAX_NAME_LENGTH:
                raise InputError(f"jobs: {name!r} is longer than the {MAX_NAME_LENGTH} characters of a name: shorten")
            if name in by_name:
                raise InputError(f"jobs: a variant is named {name!r}, as that one is beside others: rename it")
            place = AmongJobs(variant.jobs.job, others, position, variant.name)
            named = variant.spec.model_copy(update={"name": name})
            found.append(replace(variant, spec=named, jobs=place))
    return tuple(found)
