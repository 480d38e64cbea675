"""Define one entry of the section ``jobs`` of the experiment file: a training that shares the WAN with others."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, field_validator

from wanbed.ground.strict_model import StrictModel
from wanbed.results.records.span_log import MAX_ITERATIONS
from wanbed.runner.experiment.quantities import PrintableName, whole_number
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
