"""Refuse virtual stages with what has none, or does not know them."""

from wanbed.ground.strict_model import InputError
from wanbed.runner.experiment.quantities import AUTO
from wanbed.runner.resolve.replica_times import ReplicaTimes
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.workloads.schedules.schedule import Schedule
from wanbed.workloads.schedules.virtual.virtual_stages import VirtualStages


def virtual_stages(
    written: WrittenVariant, schedule: type[Schedule] | None, stages: int, chunks: int
) -> VirtualStages | None:
    """Return the virtual stages of a variant, None if its stages are not divided.

    ``schedule`` is None for a baseline of torch. Raise InputError for a schedule without virtual stages, and for what
    is not combined with them.
    """
    if chunks == 1:
        return None
    variant, here = written.variant, written.field
    if schedule is None or schedule.virtual_layout is None:
        raise InputError(
            f"{here}.training.virtual_stages: {chunks}, and {variant.schedule} has none: give 1, or schedule "
            "interleaved-1f1b or zb-v"
        )
    if variant.transport.sharing != "none":
        raise InputError(
            f"{here}.transport.sharing: {variant.transport.sharing}: what virtual stages send goes over the "
            "connections of its own two hosts: leave sharing out"
        )
    if variant.placement == AUTO:
        raise InputError(
            f"{here}.placement: auto: the planner does not know virtual stages: name the datacenter of each stage, or "
            "leave placement out"
        )
    if written.spec.prefill is not None and (variant.prefill != "none" or variant.pool):
        raise InputError(
            f"{here}.prefill: the bubbles between virtual stages are not planned: give prefill: none and no pool"
        )
    return VirtualStages(stages, chunks, schedule.virtual_layout)


def check_alike(written: WrittenVariant, replicas: ReplicaTimes | None) -> None:
    """Raise InputError for compute times that differ between GPUs or iterations: those of parts are not known."""
    if replicas is not None:
        raise InputError(
            f"{written.field}.training.virtual_stages: the parts of a stage whose compute times differ between GPUs or "
            "vary (compute.slower, jitter, resample, a measured run) are not known: leave those out, or give 1"
        )
