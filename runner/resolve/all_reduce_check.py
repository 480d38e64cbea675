"""Check, before anything is started, that the gradients of a variant can be all-reduced as it says."""

from collections.abc import Sequence

from wanbed.ground.errors import InputError, MissingError
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.results.text import list_text
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import Placement
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.stage_rings import by_datacenter
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.testbed.gpus.gpu_assignment import GpuAssignment

NCCL, NCCL_SHARED = "nccl", "nccl-shared"


def check_all_reduce(written: WrittenVariant, placement: Placement) -> None:
    """Raise InputError if the variant cannot use its ``all_reduce``."""
    compute, transport = written.spec.compute, written.variant.transport
    collective = transport.all_reduce
    where = f"{written.field}.transport.all_reduce"
    if transport.sums_over_transport(on_device=compute.backend.sums_on_device):
        _check_overlap(written, placement)
        if collective != "ring":
            check_exclusions(_single(where, placement))
        if transport.is_hierarchical:
            _check_levels(where, placement)
        return
    homes = [sorted({place.datacenter for place in placement.replicas(stage)}) for stage in range(placement.stages)]
    check_exclusions(
        Exclusion(
            where,
            f"{collective} all-reduces what torch computes",
            "give compute: {kind: torch}",
            when=not compute.backend.sums_on_device,
        ),
        Exclusion(
            where,
            f"{collective} all-reduces between GPUs",
            "give compute.device: cuda",
            when=collective in {NCCL, NCCL_SHARED} and compute.device == "cpu",
        ),
        _single(where, placement),
        *(
            Exclusion(
                where,
                f"the replicas of stage {stage} lie in {' and '.join(names)}, and {collective} stays in one datacenter",
                "place them in one",
                when=len(names) > 1,
            )
            for stage, names in enumerate(homes)
        ),
    )


def _check_overlap(written: WrittenVariant, placement: Placement) -> None:
    backend = written.spec.compute.backend
    overlaps = written.variant.transport.sums_in_buckets and len(placement.pipelines) > 1
    check_exclusions(
        Exclusion(
            f"{written.field}.transport.all_reduce_overlap",
            f"{backend.title} hands over its gradients after the last backward only",
            when=overlaps and not backend.completes_buckets,
        )
    )


def _single(where: str, placement: Placement) -> Exclusion:
    none = "one pipeline has no gradients to all-reduce"
    return Exclusion(where, none, "give more training.pipelines", when=len(placement.pipelines) == 1)


def _check_levels(where: str, placement: Placement) -> None:
    """Raise InputError unless the datacenters in which a stage has replicas have equally many."""
    for stage in range(placement.stages):
        counts = {name: len(places) for name, places in by_datacenter(placement.replicas(stage)).items()}
        if len({*counts.values()}) > 1:
            raise InputError(
                f"{where}: hierarchical pairs each replica of a stage with one in every other datacenter, and stage "
                f"{stage} has {list_text([f'{count} in {name}' for name, count in counts.items()])}: place as many in "
                "each, or give ring"
            )


def check_segments(written: WrittenVariant, variant: PipelineVariant) -> None:
    """Raise InputError if hierarchical rings would have to sum fewer bytes than there are replicas."""
    for stage in range(variant.placement.stages):
        least_bytes = min(variant.buckets_bytes(stage))
        if len(variant.rings(stage).levels) > 1 and 0 < least_bytes < variant.pipelines:
            raise InputError(
                f"{written.field}.transport.all_reduce: hierarchical gives each of the {variant.pipelines} replicas of "
                f"stage {stage} a part of its gradients, and at once there are {least_bytes} B of them: give ring"
            )


def check_collective_gpus(variants: Sequence[ResolvedVariant], gpus: GpuAssignment | None) -> None:
    """Raise MissingError unless every variant that uses NCCL has a separate GPU for each replica of a stage.

    With ``nccl-shared`` only the replicas on one host need separate ones. To NCCL, MIG instances of a GPU are that GPU.
    """
    for position, variant in enumerate(variants):
        collective = variant.transport.all_reduce
        if collective not in {NCCL, NCCL_SHARED}:
            continue
        where = f"variants.{position}.transport.all_reduce: {collective} needs a GPU"
        if gpus is None:
            raise MissingError(
                f"{where} for each replica of a stage, and this machine offers none: bring two or more, or leave "
                "all_reduce out"
            )
        for stage in range(variant.placement.stages):
            replicas = variant.placement.replicas(stage)
            chips = {gpus.chip(place.host.name, place.gpu) for place in replicas}
            if collective == NCCL and len(chips) < len(replicas):
                raise MissingError(
                    f"{where} for each replica of a stage, and the {len(replicas)} of stage {stage} share "
                    f"{len(chips)} here: bring more GPUs, give nccl-shared to try it, or leave all_reduce out"
                )
            seats = {(place.host.name, gpus.chip(place.host.name, place.gpu)) for place in replicas}
            if len(seats) < len(replicas):
                raise MissingError(
                    f"{where} for each replica on a host, and two of stage {stage} on one host share a GPU here: "
                    "place them on different hosts, or leave all_reduce out"
                )
