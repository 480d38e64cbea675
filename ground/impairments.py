"""Define what a WAN link does to packets beyond delaying them: the one place that names each impairment.

The experiment file, network presets, qdiscs, calibration, results and reports follow from ``Impairments``, field by
field. What the kernel is told is in ``testbed.kernel.qdiscs.netem``, how one is measured in
``testbed.measurement.impairment_measures``. Only the standard library is used, because a guest kernel reads this too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

FRACTION_DIGITS = 9
"""Decimals of a fraction that the kernel, which counts in 2^-32, gives back as they were."""

_Value = TypeVar("_Value", int, float)


def _impairment(none: _Value, *, configured: str, measured: str, if_all: str = "", simulated: bool = False) -> _Value:
    """Define a field of ``Impairments``, ``none`` being without; the rest is as ``Impairment`` has it."""
    facts = {"configured": configured, "measured": measured, "if_all": if_all, "simulated": simulated}
    return field(default=none, metadata=facts)


@dataclass(frozen=True)
class Impairments:
    """What one link does to packets, each direction alike; all zero is nothing. Replaced as a whole.

    A field that ends in ``_ns`` is a duration by which the one-way latency strays to either side, and so never above
    it; any other is the fraction of packets, each way, that it befalls at random. Jitter is uniform and keeps packets
    in order; loss drops them.
    """

    jitter_ns: int = _impairment(
        0,
        configured="how far the one-way latency strays to either side, uniformly",
        measured="the same, measured, null if not measured",
    )
    loss: float = _impairment(
        0.0,
        configured="fraction of packets lost as configured, each way",
        measured="fraction of packets lost, null if not measured",
        if_all="nothing arrives",
    )

    def items(self) -> "Iterator[tuple[Impairment, Any]]":
        """Yield each impairment with its value here."""
        return ((each, getattr(self, each.field)) for each in IMPAIRMENTS)

    @property
    def delay_spread_ns(self) -> int:
        """How far a packet's delay may stray from the latency, to either side."""
        return sum(value for each, value in self.items() if each.is_duration)

    @property
    def picks_packets(self) -> bool:
        """Whether some packets fare unlike others, so that none may travel as a part of a super-packet."""
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
    """One field of ``Impairments``, and all that others need to know of it.

    ``configured`` and ``measured`` are the meanings of its columns in calibration; ``if_all`` is what becomes of
    training if it befalls every packet, empty if training goes on; ``simulated`` is whether the simulator models it.
    """

    field: str
    configured: str
    measured: str
    if_all: str
    simulated: bool

    @property
    def is_duration(self) -> bool:
        """Whether it is a duration in nanoseconds; else it is a fraction."""
        return self.field.endswith("_ns")

    @property
    def name(self) -> str:
        """Its name in an experiment file."""
        return self.field.removesuffix("_ns")

    @property
    def label(self) -> str:
        """Its name in a text."""
        return self.name.replace("_", " ")

    @property
    def column(self) -> str:
        """Its name in calibration, after ``asked_`` or ``measured_``: durations are in milliseconds there."""
        return f"{self.name}_ms" if self.is_duration else self.name

    def in_column(self, value: float) -> float:
        """Convert a value to the unit of its column."""
        return value / 1e6 if self.is_duration else value


UNIMPAIRED = Impairments()

IMPAIRMENTS = tuple(Impairment(each.name, **each.metadata) for each in fields(Impairments))

NOT_SIMULATED = tuple(each for each in reversed(IMPAIRMENTS) if not each.simulated)
"""Those that change nothing in a simulation, in the order in which texts name them."""
