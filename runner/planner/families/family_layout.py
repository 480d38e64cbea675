"""List how whole replicas may be laid over datacenters: how many stages each has, and how many replicas there are."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Family(StrEnum):
    """A way to train across datacenters."""

    PIPELINE = "pipeline"
    HIERARCHICAL = "hierarchical"
    DILOCO = "diloco"
    ATOM = "atom"


@dataclass(frozen=True)
class FamilyLayout:
    """Whole replicas of ``stages`` stages, ``replicas_per_datacenter`` in each datacenter.

    Raises ValueError for a count below 1.
    """

    stages: int
    replicas_per_datacenter: int
    datacenters: int
    microbatches: int

    def __post_init__(self) -> None:
        if min(self.stages, self.replicas_per_datacenter, self.datacenters, self.microbatches) < 1:
            raise ValueError(f"{self}: a count is below 1")

    @property
    def replicas(self) -> int:
        """The number of replicas in all datacenters together."""
        return self.replicas_per_datacenter * self.datacenters


def family_layouts(family: Family, gpus: Mapping[str, int], stages: int, sequences: int) -> tuple[FamilyLayout, ...]:
    """Return the layouts of a family for datacenters with so many GPUs: as many replicas as fit, in each alike.

    Hierarchical data parallelism and ATOM have the whole model on each GPU. A replica of DiLoCo has any number of
    stages that divides ``stages``. Microbatches are such that an iteration trains on about ``sequences`` sequences. ()
    where there are fewer than two datacenters, or one has too few GPUs. Raise ValueError for the family of pipelines.
    """
    if family is Family.PIPELINE:
        raise ValueError("pipelines have candidates of the planner, and no layouts of whole replicas")
    counts = (
        (1,)
        if family in {Family.HIERARCHICAL, Family.ATOM}
        else tuple(n for n in range(1, stages + 1) if stages % n == 0)
    )
    least = min(gpus.values())
    if len(gpus) < 2:
        return ()
    return tuple(
        FamilyLayout(count, least // count, len(gpus), max(round(sequences / (least // count * len(gpus))), 1))
        for count in counts
        if least >= count
    )
