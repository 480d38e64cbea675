"""Refuse what replicas that swap a whole model through one GPU do not go with."""

from typing import Final

from wanbed.ground.strict_model import InputError
from wanbed.runner.resolve.written_variant import WrittenVariant

WHOLE_MODEL_SCHEDULE: Final = "gpipe"
"""The schedule of a replica that swaps: all forwards, then all backwards, so that each pass loads a layer once."""


def check_swapping(written: WrittenVariant) -> None:
    """Raise InputError for what swapping does not go with."""
    compute, training, field = written.spec.compute, written.variant.training, written.field
    if not (compute.backend.takes_known_times or compute.backend.swaps):
        raise InputError(
            f"{field}.schedule: {compute.backend.title} does not swap layers: give kind: replay or torch, or schedule: "
            "diloco"
        )
    if isinstance(compute.checkpointing, tuple):
        raise InputError(
            "compute.checkpointing: a list says it stage by stage, and atom has no stages: give true or false for all"
        )
    if compute.backend.swaps and compute.checkpointing is False:
        raise InputError(
            "compute.checkpointing: false, and a group of atom computes its forward again before its backward, because "
            "its weights have left the device: leave checkpointing out, or the variant"
        )
    if training.stages not in {None, 1}:
        raise InputError(
            f"{field}.training.stages: {training.stages}, and atom has the whole model on each GPU: give 1, or leave "
            "stages out"
        )
    if training.virtual_stages not in {None, 1} or written.spec.training.virtual_stages != 1:
        raise InputError(f"{field}.schedule: atom groups layers itself: leave training.virtual_stages out")
    for name, value in (("slower", compute.slower), ("jitter", compute.jitter), ("from", compute.from_run)):
        if value:
            raise InputError(
                f"compute.{name}: atom groups layers by the times of the file or the profile: leave {name} out, or the "
                "variant"
            )
