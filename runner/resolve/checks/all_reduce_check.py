"""Check, before anything is started, that torch's collectives can all-reduce the gradients of a variant."""

from collections.abc import Sequence

from ground.strict_model import InputError
from runner.resolve.placement import Placement
from runner.resolve.resolved_variant import ResolvedVariant
from runner.resolve.written_variant import WrittenVariant
from testbed.gpus.gpu_assignment import GpuAssignment
from testbed.kernel.missing import MissingError

RING, NCCL = "ring", "nccl"


def check_all_reduce(written: WrittenVariant, placement: Placement) -> None:
    """Raise InputError if the variant cannot use its ``all_reduce``."""
    compute, collective = written.spec.compute, written.variant.transport.all_reduce
    where = f"{written.field}.transport.all_reduce"
    if collective == RING:
        return
    if not compute.backend.sums_on_device:
        raise InputError(
            f"{where}: {collective} all-reduces what torch computes: give compute: {{kind: torch}}, or leave it out"
        )
    if collective == NCCL and compute.device == "cpu":
        raise InputError(f"{where}: nccl all-reduces between GPUs: give compute.device: cuda, or leave it out")
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


def check_collective_gpus(variants: Sequence[ResolvedVariant], gpus: GpuAssignment | None) -> None:
    """Raise MissingError unless every variant that uses NCCL has a separate GPU for each replica of a stage."""
    for position, variant in enumerate(variants):
        if variant.transport.all_reduce != NCCL:
            continue
        where = f"variants.{position}.transport.all_reduce: nccl needs a GPU for each replica of a stage"
        if gpus is None:
            raise MissingError(f"{where}, and this machine offers none: bring two or more, or leave all_reduce out")
        for stage in range(variant.placement.stages):
            replicas = variant.placement.replicas(stage)
            devices = {gpus.uuids[place.host.name][place.gpu] for place in replicas}
            if len(devices) < len(replicas):
                raise MissingError(
                    f"{where}, and the {len(replicas)} of stage {stage} share {len(devices)} here: bring more GPUs, or "
                    "leave all_reduce out"
                )
