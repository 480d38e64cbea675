"""Define how the changes of a WAN link are written: a trace, whether it begins anew, and events."""

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
    model_serializer,
    model_validator,
)

from wanbed.ground.shown_text import shown
from wanbed.ground.strict_model import StrictModel
from wanbed.ground.units import DURATION_SCHEMA, DurationNs, format_duration, parse_duration_ns
from wanbed.testbed.network.links.figures_spec import FIGURES, FiguresSpec, without_defaults

MAX_PATH_CHARACTERS = 4095
MIN_WINDOW_NS = 10 * 10**6


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
    if window_ns < MIN_WINDOW_NS:
        raise ValueError(f"{format_duration(window_ns)} is below {format_duration(MIN_WINDOW_NS)}")
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
"""Whether a course begins anew, or its period in nanoseconds."""


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
