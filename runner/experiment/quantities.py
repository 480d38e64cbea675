"""Define the types of single fields: a value or one per stage, counts, names, and choices."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from wanbed.ground.errors import shown
from wanbed.ground.units import (
    SIZE_SCHEMA,
    DurationNs,
    SizeBytes,
    format_duration,
    format_size,
    parse_duration_ns,
    parse_size_bytes,
)
from wanbed.workloads.transport.frame import CHUNK_BYTES

AUTO: Literal["auto"] = "auto"
MAX_CONNECTIONS = 64
MAX_PIPELINES = 1024
MAX_DILATION = 100.0
MAX_NAME_LENGTH = 80
MAX_PATH_LENGTH = 4095
"""The limit of Linux, PATH_MAX without the terminating zero byte."""
MIN_WINDOW_BYTES = 4 * 2**10
MAX_WINDOW_BYTES = 511 * 2**20
"""The kernel counts a receive buffer in 31 bits, and one that holds a window is four times as large."""
MIN_BUCKET_BYTES = 4 * 2**10
MIN_PIECE_BYTES, MAX_PIECE_BYTES = 4 * 2**10, CHUNK_BYTES


def _single_or_list(parse: Callable[[object], int]) -> Callable[[object], int | tuple[int, ...]]:
    def validate(written: object) -> int | tuple[int, ...]:
        if not isinstance(written, list | tuple):
            return parse(written)
        values = []
        for position, entry in enumerate(written):
            try:
                values.append(parse(entry))
            except ValueError as refusal:
                raise ValueError(f"entry {position}: {refusal}") from None
        return tuple(values)

    return validate


def _write_single_or_list(write: Callable[[int], str]) -> Callable[[int | tuple[int, ...]], Any]:
    def serialize(value: int | tuple[int, ...]) -> Any:
        return [write(entry) for entry in value] if isinstance(value, tuple) else write(value)

    return serialize


def _positive_size_bytes(text: object) -> int:
    size_bytes = parse_size_bytes(text)
    if size_bytes < 1:
        raise ValueError(f"{shown(text)} is nothing to send: give at least 1B")
    return size_bytes


StageDurationsNs = Annotated[
    int | tuple[int, ...],
    PlainValidator(_single_or_list(parse_duration_ns), json_schema_input_type=DurationNs | tuple[DurationNs, ...]),
    PlainSerializer(_write_single_or_list(format_duration)),
]
"""One duration for all stages, or a list with one for each stage, stage 0 first."""

BoundarySizesBytes = Annotated[
    int | tuple[int, ...],
    PlainValidator(_single_or_list(_positive_size_bytes), json_schema_input_type=SizeBytes | tuple[SizeBytes, ...]),
    PlainSerializer(_write_single_or_list(format_size)),
]
"""One size for all stage boundaries, or a list with one for each. Entry i lies between stages i and i + 1."""


def whole_number(least: int, most: int) -> PlainValidator:
    """Return a validator for a whole number from ``least`` to ``most``. It rejects text, booleans and fractions."""

    def check(written: object) -> int:
        if type(written) is int and least <= written <= most:
            return written
        raise ValueError(f"{shown(written)} is not a whole number from {least} to {most}")

    return PlainValidator(check, json_schema_input_type=Annotated[int, Field(ge=least, le=most)])


def _printable(what: str, most: int) -> PlainValidator:
    def check(written: object) -> str:
        if not isinstance(written, str):
            raise ValueError(f"{shown(written)} is not text: put it in quotes")
        if not 1 <= len(written) <= most or not written.isprintable() or not written.strip():
            raise ValueError(f"{shown(written)} is no {what}: give 1 to {most} printable characters")
        return written

    schema = {"title": what, "type": "string", "minLength": 1, "maxLength": most, "pattern": r"\S"}
    return PlainValidator(check, json_schema_input_type=Annotated[str, WithJsonSchema(schema)])


PrintableName = Annotated[str, _printable("name", MAX_NAME_LENGTH)]
NameOrPath = Annotated[str, _printable("name or path", MAX_PATH_LENGTH)]
"""A known name, or the path of a file."""


def _window_bytes(written: object) -> int:
    size_bytes = parse_size_bytes(written)
    if not MIN_WINDOW_BYTES <= size_bytes <= MAX_WINDOW_BYTES:
        bounds = f"{format_size(MIN_WINDOW_BYTES)} to {format_size(MAX_WINDOW_BYTES)}"
        raise ValueError(f"{shown(written)} is not from {bounds}")
    return size_bytes


WindowBytes = Annotated[int, PlainValidator(_window_bytes), PlainSerializer(format_size), WithJsonSchema(SIZE_SCHEMA)]


def _bucket_bytes(written: object) -> int:
    size_bytes = parse_size_bytes(written)
    if size_bytes < MIN_BUCKET_BYTES:
        raise ValueError(f"{shown(written)} is below {format_size(MIN_BUCKET_BYTES)}")
    return size_bytes


BucketBytes = Annotated[int, PlainValidator(_bucket_bytes), PlainSerializer(format_size), WithJsonSchema(SIZE_SCHEMA)]


def _piece_bytes(written: object) -> int | str:
    if written == AUTO:
        return AUTO
    size_bytes = parse_size_bytes(written)
    if not MIN_PIECE_BYTES <= size_bytes <= MAX_PIECE_BYTES:
        bounds = f"{format_size(MIN_PIECE_BYTES)} to {format_size(MAX_PIECE_BYTES)}"
        raise ValueError(f"{shown(written)} is neither auto nor from {bounds}")
    return size_bytes


PieceBytes = Annotated[
    int | Literal["auto"],
    PlainValidator(_piece_bytes),
    PlainSerializer(lambda written: written if written == AUTO else format_size(written)),
    WithJsonSchema({"anyOf": [{"const": AUTO}, SIZE_SCHEMA]}),
]


_CONGESTION_CONTROL = "[a-z0-9_-]{1,15}"


def _congestion_control(written: object) -> str:
    if isinstance(written, str) and re.fullmatch(_CONGESTION_CONTROL, written):
        return written
    raise ValueError(f"{shown(written)} is no congestion control's name: write one like cubic, reno or bbr")


CongestionControl = Annotated[
    str,
    PlainValidator(_congestion_control),
    WithJsonSchema({"title": "name", "type": "string", "pattern": f"^{_CONGESTION_CONTROL}$"}),
]


def _truth(written: object) -> bool:
    if isinstance(written, bool):
        return written
    raise ValueError(f"{shown(written)} is neither true nor false")


Truth = Annotated[bool, PlainValidator(_truth, json_schema_input_type=bool)]
StageTruths = Annotated[
    bool | tuple[bool, ...],
    PlainValidator(_single_or_list(_truth), json_schema_input_type=bool | tuple[bool, ...]),
    PlainSerializer(lambda value: list(value) if isinstance(value, tuple) else value),
]
"""One answer for all stages, or a list with one for each stage, stage 0 first."""


def _connections(written: object) -> int | str:
    if written == AUTO or (type(written) is int and 1 <= written <= MAX_CONNECTIONS):
        return written
    raise ValueError(f"{shown(written)} is neither auto nor a whole number from 1 to {MAX_CONNECTIONS}")


def _stage_datacenters(written: object) -> Literal["auto"] | tuple[str, ...] | tuple[tuple[str, ...], ...]:
    if written == AUTO:
        return AUTO
    entries = written if isinstance(written, list | tuple) else ()
    if entries and all(isinstance(entry, str) for entry in entries):
        return tuple(entries)
    if entries and all(isinstance(entry, list | tuple) and _stage_datacenters(entry) for entry in entries):
        return tuple(tuple(entry) for entry in entries)
    raise ValueError(
        f"{shown(written)} is not run here, give a list with one datacenter for each stage, or such a list for each "
        "pipeline, or auto"
    )


def _write_stage_datacenters(homes: str | tuple[str, ...] | tuple[tuple[str, ...], ...]) -> object:
    return homes if isinstance(homes, str) else [name if isinstance(name, str) else list(name) for name in homes]


StageDatacenters = Annotated[
    Literal["auto"] | tuple[str, ...] | tuple[tuple[str, ...], ...],
    PlainValidator(
        _stage_datacenters,
        json_schema_input_type=Literal["auto"]
        | Annotated[tuple[str, ...], Field(min_length=1)]
        | Annotated[tuple[Annotated[tuple[str, ...], Field(min_length=1)], ...], Field(min_length=1)],
    ),
    PlainSerializer(_write_stage_datacenters),
]
"""The datacenter of each stage: one list for all pipelines, one list for each, or auto (the planner chooses)."""


def _pipelines_per_cell(written: object) -> int | str:
    if written == AUTO or (type(written) is int and 1 <= written <= MAX_PIPELINES):
        return written
    raise ValueError(f"{shown(written)} is neither auto nor a whole number from 1 to {MAX_PIPELINES}")


def _learning_rate(written: object) -> float:
    if isinstance(written, int | float) and not isinstance(written, bool) and 0 < written <= 1:
        return float(written)
    raise ValueError(f"{shown(written)} is no learning rate: give a number above 0, at most 1, like 0.0003 or 3.0e-4")


def _dilation(written: object) -> float | str:
    if written == AUTO:
        return AUTO
    if isinstance(written, int | float) and not isinstance(written, bool) and 1 <= written <= MAX_DILATION:
        return float(written)
    raise ValueError(f"{shown(written)} is neither auto nor a number from 1 to {MAX_DILATION:g}")


PipelinesPerCell = Annotated[
    int | Literal["auto"],
    PlainValidator(
        _pipelines_per_cell, json_schema_input_type=Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_PIPELINES)]
    ),
]
LearningRate = Annotated[
    float, PlainValidator(_learning_rate, json_schema_input_type=Annotated[float, Field(gt=0, le=1)])
]
Connections = Annotated[
    int | Literal["auto"],
    PlainValidator(
        _connections, json_schema_input_type=Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_CONNECTIONS)]
    ),
]
Dilation = Annotated[
    float | Literal["auto"],
    PlainValidator(_dilation, json_schema_input_type=Literal["auto"] | Annotated[float, Field(ge=1, le=MAX_DILATION)]),
]
