"""Check, before anything is started, that torch's collectives can all-reduce the gradients of a variant."""

from collections.abc import Sequence

from ground.strict_model import InputError
from runner.resolve.placement import Placement
from runner.resolve.resolved_variant import ResolvedVariant
from runner.resolve.written_variant import WrittenVariant
from testbed.gpus.gpu_assignment import GpuAssignment
from testbed.kernel.missing import MissingError

RING, NCCL, NCCL_SHARED = "ring", "nccl", "nccl-shared"


def check_all_reduce(written: WrittenVariant, placement: Placement) -> None:
    """Raise InputError if the variant cannot use its ``all_reduce``."""
    compute, collective = written.spec.compute, written.variant.transport.all_reduce
    where = f"{written.field}.transport.all_reduce"
    if collective == RING:
        _check_overlap(written, placement)
        return
    if not compute.backend.sums_on_device:
        raise InputError(
            f"{where}: {collective} all-reduces what torch computes: give compute: {{kind: torch}}, or leave it out"
        )
    if collective in {NCCL, NCCL_SHARED} and compute.device == "cpu":
        raise InputError(f"{where}: {collective} all-reduces between GPUs: give compute.device: cuda, or leave it out")
    if len(placement.pipelines) == 1:
        raise InputError(
            f"{where}: one pipeline has no gradients to all-reduce: give more training.pipelines, or leave it out"
        )
    for stage in range(placement.stages):
        homes = sorted({place.datacenter for place in placement.replicas(stage)})
        if len(homes) > 1:
            raise InputError(
                f"{where}: the replicas of stage {stage} lie in {' and '.join(homes)}, and {collective} stays in one "
                "datacenter: place them in one, or leave it out"
            )


def _check_overlap(written: WrittenVariant, placement: Placement) -> None:
    backend = written.spec.compute.backend
    overlaps = written.variant.transport.sums_in_buckets and len(placement.pipelines) > 1
    if overlaps and not backend.completes_buckets:
        raise InputError(
            f"{written.field}.transport.all_reduce_overlap: {backend.title} hands over its gradients after the last "
            "backward only: give all_reduce_overlap: false"
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
