"""Define the section ``generate`` of a WAN link: changes that are drawn at random."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from wanbed.ground.strict_model import StrictModel
from wanbed.ground.units import DurationNs, Fraction, format_duration
from wanbed.testbed.network.links.figures_spec import DelayNs
from wanbed.testbed.network.links.link_course import MAX_CHANGES

MIN_STEP_NS = 10 * 10**6


def _positive(value: int | float) -> int | float:
    if value <= 0:
        raise ValueError("it is zero: give more")
    return value


_PositiveNs = Annotated[DurationNs, AfterValidator(_positive)]
_PositiveFraction = Annotated[Fraction, AfterValidator(_positive)]


class DiurnalSpec(StrictModel):
    """A rate that swings like a day: a cosine between all of it and ``low``. Where it begins is drawn."""

    period: _PositiveNs = Field(description="Time from one peak to the next.", examples=["60s"])
    low: _PositiveFraction = Field(description="Least rate, as part of the constant one.", examples=["40%"])


class MarkovSpec(StrictModel):
    """A rate that jumps between levels: a Markov chain in continuous time. The first level is the first one listed."""

    levels: tuple[_PositiveFraction, ...] = Field(
        min_length=2,
        max_length=100,
        description="The rates, as parts of the constant one. The next is any of the others, equally likely.",
        examples=[["100%", "50%", "20%"]],
    )
    stay: _PositiveNs = Field(description="Mean time at a level, exponentially distributed.", examples=["10s"])


class LatencyStepsSpec(StrictModel):
    """A latency that steps, as when a route changes."""

    every: _PositiveNs = Field(description="Mean time between steps, exponentially distributed.", examples=["20s"])
    up_to: Annotated[DelayNs, AfterValidator(_positive)] = Field(
        description="The most that is added to the constant latency; how much is drawn, uniformly, at each step.",
        examples=["15ms"],
    )


class OutagesSpec(StrictModel):
    """Times at which nothing that is sent arrives, in both directions at once. The link is up at first."""

    mtbf: _PositiveNs = Field(
        description="Mean time from the end of an outage to the next one, exponentially distributed.", examples=["60s"]
    )
    mttr: _PositiveNs = Field(description="Mean length of an outage, exponentially distributed.", examples=["2s"])


class GenerateSpec(StrictModel):
    """Changes drawn from ``seed`` and the names of the link's ends, for want of a measured trace.

    Every time is rounded to a ``step``, and is one step at least. Both directions of a link change alike, unless its
    entry is for one. After ``length`` the constant values hold, or it begins anew with ``loop``.
    """

    length: _PositiveNs = Field(description="For how long changes are drawn.", examples=["120s"])
    step: _PositiveNs = Field(
        default=10**9, description="Shortest time between changes, 10ms at least.", examples=["500ms"]
    )
    diurnal: DiurnalSpec | None = Field(
        default=None,
        description="Let `rate` and `node_pair_rate` swing like a day.",
        examples=[{"period": "60s", "low": "40%"}],
    )
    markov: MarkovSpec | None = Field(
        default=None,
        description="Let `rate` and `node_pair_rate` jump between levels; with `diurnal` the two parts are multiplied.",
        examples=[{"levels": ["100%", "50%"], "stay": "10s"}],
    )
    latency_steps: LatencyStepsSpec | None = Field(
        default=None, description="Let `latency` step.", examples=[{"every": "20s", "up_to": "15ms"}]
    )
    outages: OutagesSpec | None = Field(
        default=None, description="Take the link down at times.", examples=[{"mtbf": "60s", "mttr": "2s"}]
    )

    @property
    def drawn(self) -> tuple[str, ...]:
        """The names of what is drawn."""
        names = ("diurnal", "markov", "latency_steps", "outages")
        return tuple(name for name in names if getattr(self, name) is not None)

    @property
    def fields(self) -> frozenset[str]:
        """The fields of the link that change."""
        found: set[str] = set()
        if self.diurnal is not None or self.markov is not None:
            found |= {"rate", "node_pair_rate"}
        if self.latency_steps is not None:
            found.add("latency")
        if self.outages is not None:
            found.add("up")
        return frozenset(found)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.drawn:
            raise ValueError("nothing is drawn: give any of diurnal, markov, latency_steps and outages")
        if self.step < MIN_STEP_NS:
            raise ValueError(f"step: {format_duration(self.step)} is below {format_duration(MIN_STEP_NS)}")
        if self.length < self.step:
            raise ValueError(f"length: {format_duration(self.length)} is shorter than a step: give more")
        if self.length // self.step > MAX_CHANGES:
            raise ValueError(
                f"length: more than {MAX_CHANGES} steps of {format_duration(self.step)}: give less, or a longer step"
            )
        return self
