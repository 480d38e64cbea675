"""Change Parquet tables: columns that are missing, of another type or name, with other values; rows; the bytes."""

from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.reliability.fuzz.mutations.of_bytes import damaged_bytes
from tests.reliability.fuzz.mutations.wrong_values import NUMBERS, TEXTS

_VERSIONS = (b"", b"0", b"1", b"99", b"x", b"\x1b[31m")


def damaged_table(data: bytes, draw: Random) -> bytes:
    """Return a Parquet file with one to three changes of its table, or of its bytes."""
    if draw.random() < 0.3:
        return damaged_bytes(data, draw)
    table = pq.read_table(pa.BufferReader(data))
    for _ in range(draw.choice((1, 1, 2, 3))):
        table = draw.choice(_CHANGES)(table, draw)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def _column(table: pa.Table, draw: Random) -> int:
    return draw.randrange(table.num_columns)


def _without_column(table: pa.Table, draw: Random) -> pa.Table:
    return table.remove_column(_column(table, draw)) if table.num_columns > 1 else table


def _column_twice(table: pa.Table, draw: Random) -> pa.Table:
    place = _column(table, draw)
    return table.append_column(draw.choice((table.field(place).name, "more", "\x1b[31m")), table.column(place))


def _other_type(table: pa.Table, draw: Random) -> pa.Table:
    place = _column(table, draw)
    kind = draw.choice(
        (pa.string(), pa.float64(), pa.int32(), pa.int64(), pa.uint8(), pa.bool_(), pa.binary(), pa.null())
    )
    try:
        column: Any = pc.cast(table.column(place), kind, safe=False)
    except pa.ArrowException:
        column = pa.nulls(len(table), kind)
    return table.set_column(place, table.field(place).name, column)


def _other_value(table: pa.Table, draw: Random) -> pa.Table:
    place = _column(table, draw)
    values = table.column(place).to_pylist()
    if not values:
        return table
    wrong = draw.choice((None, *TEXTS)) if isinstance(values[0], str) else draw.choice((None, *NUMBERS))
    for row in range(len(values)) if draw.random() < 0.4 else (draw.randrange(len(values)),):
        values[row] = wrong
    field = table.field(place)
    try:
        column = pa.array(values, type=field.type)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return table
    return table.set_column(place, field.with_nullable(True), column)


def _other_rows(table: pa.Table, draw: Random) -> pa.Table:
    return draw.choice(
        (
            table.slice(0, 0),
            table.slice(0, len(table) // 2),
            pa.concat_tables([table, table]),
            table.take(pa.array(draw.sample(range(len(table)), len(table)), pa.int64())),
        )
    )


def _other_order(table: pa.Table, draw: Random) -> pa.Table:
    return table.select(draw.sample(table.schema.names, table.num_columns)) if _names_once(table) else table


def _other_version(table: pa.Table, draw: Random) -> pa.Table:
    found = table.schema.metadata or {}
    return table.replace_schema_metadata(
        {key: draw.choice(_VERSIONS) for key in found} if draw.random() < 0.7 else None
    )


def _names_once(table: pa.Table) -> bool:
    return len(set(table.schema.names)) == table.num_columns


_CHANGES: tuple[Callable[[pa.Table, Random], pa.Table], ...] = (
    _without_column,
    _column_twice,
    _other_type,
    _other_value,
    _other_value,
    _other_value,
    _other_rows,
    _other_order,
    _other_version,
)
