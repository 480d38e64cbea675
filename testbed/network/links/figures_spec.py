"""Define what is written of a WAN link: its latency, rates and impairments. Latencies are one-way."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field, create_model

from wanbed.ground.impairments import IMPAIRMENTS, UNIMPAIRED
from wanbed.ground.strict_model import Model, StrictModel
from wanbed.ground.units import DurationNs, Fraction, RateBps, format_duration

MAX_DELAY_NS = 60 * 10**9

FIGURES = ("latency", "rate", "node_pair_rate", *(each.name for each in IMPAIRMENTS))
"""The fields of ``FiguresSpec``."""


def check_delay(delay_ns: int) -> int:
    """Return a delay that a link may have. Raise ValueError for a longer one."""
    if delay_ns > MAX_DELAY_NS:
        raise ValueError(
            f"{format_duration(delay_ns)} is above the {format_duration(MAX_DELAY_NS)} that a link may have"
        )
    return delay_ns


DelayNs = Annotated[DurationNs, AfterValidator(check_delay)]


def _with_impairments(model: type[Model]) -> type[Model]:
    """Add a field for each impairment to a model."""
    fields: dict[str, Any] = {
        each.name: (
            DelayNs if each.is_duration else Fraction,
            Field(default=none, description=each.description, examples=[each.example]),
        )
        for each, none in UNIMPAIRED.items()
    }
    return create_model(model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **fields)


@_with_impairments
class FiguresSpec(StrictModel):
    """Latency, rates and impairments of a WAN link."""

    latency: DelayNs = Field(
        default=0, description="One-way latency between two datacenters, 60s at most.", examples=["40ms"]
    )
    rate: RateBps = Field(
        default=None,
        description="Rate of the trunk between two datacenters, in each direction.",
        examples=["10Gbit", "unlimited"],
    )
    node_pair_rate: RateBps = Field(
        default=None,
        description="Cap on what each pair of hosts sends across the trunk, in each direction.",
        examples=["5Gbit"],
    )


def without_defaults(schema: dict[str, Any]) -> None:
    """Leave defaults out of a model's JSON schema: a field that is not written is not set to them."""
    for field in schema["properties"].values():
        field.pop("default", None)
