"""Define what is written of a WAN link: its figures, and how they change. Latencies are one-way.

Figures are latency, rates and impairments. Changes are a trace, events, or drawn at random (section ``generate``).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    create_model,
    model_serializer,
    model_validator,
)

from wanbed.ground.errors import shown
from wanbed.ground.impairments import IMPAIRMENTS, UNIMPAIRED
from wanbed.ground.strict_model import Model, StrictModel
from wanbed.ground.units import DURATION_SCHEMA, DurationNs, Fraction, RateBps, format_duration, parse_duration_ns
from wanbed.testbed.network.links.wan_link import MAX_CHANGES, UNRESTRICTED, LinkConditions

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


MAX_PATH_CHARACTERS = 4095
_MIN_WINDOW_NS = 10 * 10**6


def _path(written: object) -> str:
    if not isinstance(written, str) or not written.strip() or not written.isprintable():
        raise ValueError(f"{shown(written)} is no path: give that of a file, like drift.csv")
    if len(written) > MAX_PATH_CHARACTERS:
        raise ValueError(f"{shown(written)} is no path: it has more than {MAX_PATH_CHARACTERS} characters")
    return written


FilePath = Annotated[
    str,
    PlainValidator(_path),
    WithJsonSchema({"title": "path", "type": "string", "pattern": r"\S", "maxLength": MAX_PATH_CHARACTERS}),
]


def _check_window(window_ns: int) -> int:
    if window_ns < _MIN_WINDOW_NS:
        raise ValueError(f"{format_duration(window_ns)} is below {format_duration(_MIN_WINDOW_NS)}")
    return window_ns


class TraceSpec(StrictModel):
    """A file of conditions over time. In place of the section, the path of a CSV file can be given."""

    csv: FilePath | None = Field(
        default=None, description="Path of a CSV file, relative to the experiment file.", examples=["drift.csv"]
    )
    mahimahi: FilePath | None = Field(
        default=None,
        description="Path of a Mahimahi trace in place of a CSV file: one line for each 1500 bytes that the link can "
        "carry, with the time in ms. It gives the `rate`.",
        examples=["driving.down"],
    )
    window: Annotated[DurationNs, AfterValidator(_check_window)] = Field(
        default=100_000_000,
        description="Of a Mahimahi trace: the time over which a rate is the mean, 10ms at least.",
        examples=["100ms"],
    )

    @model_validator(mode="after")
    def _names_one_file(self) -> Self:
        if (self.csv is None) == (self.mahimahi is None):
            raise ValueError("give either the path of a CSV file or mahimahi, the path of a Mahimahi trace")
        if self.mahimahi is None and "window" in self.model_fields_set:
            raise ValueError("window goes with mahimahi: a CSV file has rates of its own, leave it out")
        return self

    @property
    def file(self) -> str:
        """The path as written."""
        path = self.csv or self.mahimahi
        assert path is not None
        return path

    @property
    def key(self) -> str:
        """The key that tells it from other traces: its path, and its way of being read."""
        return self.file if self.mahimahi is None else f"{self.mahimahi} (Mahimahi, {format_duration(self.window)})"

    @model_serializer(mode="plain")
    def _as_written(self) -> Any:
        if self.csv is not None:
            return self.csv
        return {"mahimahi": self.mahimahi, "window": format_duration(self.window)}


def _trace(written: object) -> object:
    if isinstance(written, str):
        return {"csv": _path(written)}
    if isinstance(written, Mapping | TraceSpec):
        return written
    raise ValueError(f"{shown(written)} is no trace: give the path of a CSV file, or {{mahimahi: FILE}}")


WrittenTrace = Annotated[TraceSpec, BeforeValidator(_trace, json_schema_input_type=FilePath | TraceSpec)]


def _loop(written: object) -> bool | int:
    if isinstance(written, bool):
        return written
    period_ns = parse_duration_ns(written)
    if period_ns == 0:
        raise ValueError(f"{shown(written)} is no period: give a longer one, or true")
    return period_ns


Loop = Annotated[
    bool | int,
    PlainValidator(_loop, json_schema_input_type=bool | Annotated[str, WithJsonSchema(DURATION_SCHEMA)]),
    PlainSerializer(lambda loop: loop if isinstance(loop, bool) else format_duration(loop)),
]
"""True or false as a course begins anew or not, or its period in nanoseconds."""


class EventSpec(FiguresSpec):
    """A change of a link at a time, with any of its fields. Where events overlap in a field, the later one holds.

    Without ``for`` it holds until a later event changes the field.
    """

    model_config = ConfigDict(json_schema_extra=without_defaults)

    at: DurationNs = Field(description="When it begins, since training began.", examples=["30s"])
    lasts: DurationNs | None = Field(
        default=None,
        alias="for",
        description="How long it holds. Then the field is as it would be without the event.",
        examples=["5s"],
    )
    down: bool = Field(
        default=False, strict=True, description="Whether nothing that is sent meanwhile arrives.", examples=[True]
    )

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.lasts == 0:
            raise ValueError("for: 0s is no time: give a longer one, or leave it out")
        if not self.fields:
            raise ValueError(f"it changes nothing: give any of {', '.join(FIGURES)} and down")
        return self

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that it changes; ``down`` is called ``up``."""
        written = self.model_fields_set
        return (*(name for name in FIGURES if name in written), *(["up"] if "down" in written else []))

    def value(self, field: str) -> Any:
        """Return what a field changes to."""
        return not self.down if field == "up" else getattr(self, field)

    @model_serializer(mode="wrap")
    def _as_written(self, write: SerializerFunctionWrapHandler) -> Any:
        """Keep the fields that are written: others do not change. ``for`` is called so however a model is dumped."""
        dumped = {"lasts" if name == "for" else name: value for name, value in write(self).items()}
        return {"for" if name == "lasts" else name: dumped[name] for name in dumped if name in self.model_fields_set}


_MIN_STEP_NS = 10 * 10**6


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
        if self.step < _MIN_STEP_NS:
            raise ValueError(f"step: {format_duration(self.step)} is below {format_duration(_MIN_STEP_NS)}")
        if self.length < self.step:
            raise ValueError(f"length: {format_duration(self.length)} is shorter than a step: give more")
        if self.length // self.step > MAX_CHANGES:
            raise ValueError(
                f"length: more than {MAX_CHANGES} steps of {format_duration(self.step)}: give less, or a longer step"
            )
        return self


def conditions_of(spec: FiguresSpec, base: LinkConditions = UNRESTRICTED) -> LinkConditions:
    """Return a link as written; fields that are not written come from ``base``."""
    return base.with_values({name: getattr(spec, name) for name in FIGURES if name in spec.model_fields_set})
