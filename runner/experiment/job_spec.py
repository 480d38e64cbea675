"""Define the section ``jobs`` of the experiment file: trainings that share the WAN, and divide the variants."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import Field, field_validator

from wanbed.ground.errors import did_you_mean, shown
from wanbed.ground.exclusions import Exclusion
from wanbed.ground.strict_model import StrictModel
from wanbed.results.records.span_log import MAX_ITERATIONS
from wanbed.runner.experiment.quantities import PrintableName, whole_number
from wanbed.runner.experiment.variant_spec import VariantSpec
from wanbed.runner.trainings.registry import TRAININGS
from wanbed.testbed.network.topology_spec import MAX_HOSTS_PER_DATACENTER

HostCount = Annotated[int, whole_number(0, MAX_HOSTS_PER_DATACENTER)]


class JobSpec(StrictModel):
    """One of several trainings on the same WAN, with hosts of its own and the variants to try of it."""

    name: PrintableName = Field(description="Name of the job in tables, each its own.", examples=["ours"])
    hosts: Mapping[str, HostCount] = Field(
        description="How many hosts the job has in each datacenter; of one that is left out, none. Jobs take hosts in "
        "order: the first job the first ones. No two jobs share a host.",
        examples=[{"east": 2, "west": 2}],
    )
    variants: tuple[str, ...] = Field(
        description="Names of the `variants` to try of this job. Each runs alone first. Then every combination of one "
        "variant of each job runs at once.",
        examples=[["atlas", "varuna"]],
    )
    iterations: Annotated[int, whole_number(1, MAX_ITERATIONS)] | None = Field(
        default=None,
        description="Replaces `training.iterations` for this job. Of jobs that run at once only iterations count that "
        "end before the first of them has done its last. Default: the same.",
        examples=[12],
    )

    @field_validator("hosts")
    @classmethod
    def _has_a_host(cls, hosts: Mapping[str, int]) -> Mapping[str, int]:
        if not any(hosts.values()):
            raise ValueError("a job without hosts trains nothing: give how many in each datacenter, like {east: 2}")
        return hosts

    @field_validator("variants")
    @classmethod
    def _has_a_variant(cls, variants: tuple[str, ...]) -> tuple[str, ...]:
        if not variants:
            raise ValueError("a job needs a variant to run: give the names of one or more")
        return variants


def beside_jobs(jobs: Sequence[JobSpec], variants: Sequence[VariantSpec]) -> Iterator[Exclusion]:
    """Yield what does not go with several jobs."""
    yield Exclusion("jobs", "a single one shares the WAN with nobody", "give two or more", when=len(jobs) == 1)
    yield Exclusion("prefill", "it does not run beside another job", leave="prefill or jobs")
    yield Exclusion("fail", "nothing is let fail beside another job", leave="fail or jobs")
    for position, variant in enumerate(variants):
        if variant.schedule in TRAININGS:
            what = "program" if variant.program is not None else "schedule"
            ours = "only trainings by a schedule of wanbed's ranks run beside another job"
            yield Exclusion(f"variants.{position}.{what}", ours, leave="the variant or jobs")


def check_jobs(jobs: Sequence[JobSpec], variants: Sequence[VariantSpec]) -> None:
    """Raise ValueError if jobs are named alike, or if a variant is in none of them or in several."""
    names = [job.name for job in jobs]
    homes: dict[str, str] = {}
    known = [variant.name for variant in variants]
    for position, job in enumerate(jobs):
        if job.name in names[:position]:
            raise ValueError(f"jobs.{position}.name: {shown(job.name)} is given twice: give each job its own")
        for name in job.variants:
            if name not in known:
                remedy = did_you_mean(name, known, f"there are {', '.join(known)}")
                raise ValueError(f"jobs.{position}.variants: no variant {shown(name)}, {remedy}")
            if name in homes:
                raise ValueError(
                    f"jobs.{position}.variants: {shown(name)} is a variant of {shown(homes[name])} already: give each "
                    "job variants of its own"
                )
            homes[name] = job.name
    for position, variant in enumerate(variants):
        if variant.name not in homes:
            raise ValueError(f"variants.{position}: no job has {shown(variant.name)}: add it to one, or leave it out")
