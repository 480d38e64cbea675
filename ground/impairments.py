"""Define the impairments of a WAN link: what it does to packets beyond delay and rate.

The experiment file, network presets, qdiscs, calibration, results and reports follow from the fields of
``Impairments``. ``wanbed.testbed.kernel.qdiscs`` encodes them for the kernel,
``wanbed.testbed.measurement.impairment_measures`` measures them. Only the standard library is used, for the gateway
guest.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

FRACTION_DIGITS = 9
"""Decimals of a fraction that survive the kernel's representation, a multiple of 2^-32."""

_Value = TypeVar("_Value", int, float)


def _impairment(
    none: _Value,
    *,
    description: str,
    example: str,
    configured: str,
    measured: str,
    if_all: str = "",
    simulated: bool = False,
) -> _Value:
    """Define a field of ``Impairments`` whose value without the impairment is ``none``; see ``Impairment``."""
    facts = {
        "description": description,
        "example": example,
        "configured": configured,
        "measured": measured,
        "if_all": if_all,
        "simulated": simulated,
    }
    return field(default=none, metadata=facts)


@dataclass(frozen=True)
class Impairments:
    """The impairments of one direction of a link; all zero means none. Immutable.

    A field that ends in ``_ns`` is a duration: the most by which the one-way latency deviates to either side, and so
    at most that latency. Any other field is the fraction of packets affected at random.
    """

    jitter_ns: int = _impairment(
        0,
        description="Largest deviation of the one-way latency to either side, at most the latency. Deviations are "
        "uniformly distributed and keep packets in order.",
        example="1ms",
        configured="largest deviation of the one-way latency to either side, uniformly distributed, as configured",
        measured="the same, measured, null if not measured",
        simulated=True,
    )
    loss: float = _impairment(
        0.0,
        description="Percentage of packets dropped at random, in each direction.",
        example="0.1%",
        configured="fraction of packets to lose in each direction, as configured",
        measured="fraction of packets lost, null if not measured",
        if_all="nothing arrives",
        simulated=True,
    )

    def items(self) -> "Iterator[tuple[Impairment, Any]]":
        """Yield each impairment with its value on this link."""
        return ((each, getattr(self, each.field)) for each in IMPAIRMENTS)

    @property
    def delay_spread_ns(self) -> int:
        """Largest deviation of a packet's delay from the latency, to either side."""
        return sum(value for each, value in self.items() if each.is_duration)

    @property
    def picks_packets(self) -> bool:
        """True if packets are affected individually, so that none may travel as part of a super-packet."""
        return any(value for each, value in self.items() if not each.is_duration)

    def dilated(self, factor: float) -> "Impairments":
        """Return the same in dilated time: durations times ``factor``."""
        return replace(self, **{each.field: round(value * factor) for each, value in self.items() if each.is_duration})

    def rounded(self) -> "Impairments":
        """Return the same with fractions of ``FRACTION_DIGITS`` decimals."""
        rounded = {each.field: round(value, FRACTION_DIGITS) for each, value in self.items() if not each.is_duration}
        return replace(self, **rounded)


@dataclass(frozen=True)
class Impairment:
    """One field of ``Impairments`` and its properties.

    ``description`` and ``example`` describe its field in an experiment file, ``configured`` and ``measured`` its
    columns in calibration. ``if_all`` is the effect on training if every packet is affected, empty if training goes on.
    ``simulated`` is whether the simulator models it.
    """

    field: str
    description: str
    example: str
    configured: str
    measured: str
    if_all: str
    simulated: bool

    @property
    def is_duration(self) -> bool:
        """True for a duration in nanoseconds, false for a fraction."""
        return self.field.endswith("_ns")

    @property
    def name(self) -> str:
        """Its name in an experiment file."""
        return self.field.removesuffix("_ns")

    @property
    def label(self) -> str:
        """Its name in texts for people."""
        return self.name.replace("_", " ")

    @property
    def column(self) -> str:
        """Its column in calibration, after ``configured_`` or ``measured_``. Durations there are in milliseconds."""
        return f"{self.name}_ms" if self.is_duration else self.name

    def in_column(self, value: float) -> float:
        """Convert a value to the unit of its column."""
        return value / 1e6 if self.is_duration else value


UNIMPAIRED = Impairments()

IMPAIRMENTS = tuple(Impairment(each.name, **each.metadata) for each in fields(Impairments))

NOT_SIMULATED = tuple(each for each in reversed(IMPAIRMENTS) if not each.simulated)
"""Impairments that the simulator ignores, in the order in which texts name them."""
