"""Define the ``options`` of a variant with ``schedule: atom``."""

from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from wanbed.ground.shown_text import shown
from wanbed.ground.strict_model import InputError, parse_model
from wanbed.ground.units import SizeBytes, format_size, parse_size_bytes
from wanbed.runner.trainings.local_updates.spec.diloco_options import SynchronizationOptions

_PER_SECOND = "/s"


def parse_swap_rate(written: object) -> int:
    """Parse ``"12GB/s"`` to bytes per second. Raise ValueError with the remedy."""
    if not isinstance(written, str) or not written.rstrip().endswith(_PER_SECOND):
        raise ValueError(f"{shown(written)} is not bytes per second: write it like 12GB/s")
    rate = parse_size_bytes(written.rstrip().removesuffix(_PER_SECOND))
    if rate < 1:
        raise ValueError(f"{shown(written)} is below 1B/s")
    return rate


BytesPerSecond = Annotated[
    int,
    PlainValidator(parse_swap_rate),
    PlainSerializer(lambda rate: f"{format_size(rate)}{_PER_SECOND}", return_type=str),
    WithJsonSchema({"title": "bytes per second", "type": "string", "examples": ["12GB/s"]}),
]


class AtomOptions(SynchronizationOptions):
    """The options of ATOM: the swapping of a whole model through one GPU, and the averaging of the replicas."""

    swap: BytesPerSecond = Field(
        description="Rate at which layers are loaded from host memory into the GPU.", examples=["12GB/s"]
    )
    memory: SizeBytes | None = Field(
        default=None,
        description="What the GPU has for the weights of two groups of layers: the one that computes, and the one that "
        "is loaded meanwhile. Default: no limit.",
        examples=["16GiB"],
    )
    topology: Literal["ring", "star"] = Field(
        default="star", description="Between whom pseudo-gradients go.", examples=["star"]
    )


def parse_atom_options(options: dict[str, Any], field: str) -> AtomOptions:
    """Return the options at ``field`` of the experiment file. Raise InputError, one line for each mistake."""
    try:
        return parse_model(AtomOptions, options, field)
    except InputError as refusal:
        raise InputError(*(mistake.replace(f"{field}: ", f"{field}.", 1) for mistake in refusal.mistakes)) from None
