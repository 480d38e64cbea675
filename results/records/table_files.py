"""Write tables as Parquet files, and read those of this schema version and of earlier ones."""

import errno
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wanbed.ground.files import naming, regular_file
from wanbed.results.records.schema import (
    LATER_COLUMNS,
    SCHEMA_VERSION,
    SPANS,
    SPANS_OF_VIRTUAL_STAGES,
    VERSION_KEY,
    VIRTUAL_STAGE,
)
from wanbed.results.records.schema_upgrade import EARLIER_VERSIONS, renamed, upgraded

_CODED_TEXT = pa.dictionary(pa.int32(), pa.string())

_LACKS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}


def write_table(path: Path, schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> None:
    """Write rows, each in the schema's column order, as one Parquet file."""
    if rows:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
    else:
        # Not pyarrow.array: that loads pandas.
        arrays = [pa.nulls(0, field.type) for field in schema]
    write_tables(path, schema, [pa.Table.from_arrays(arrays, schema=schema)])


def write_tables(path: Path, schema: pa.Schema, tables: Iterable[pa.Table], *, coded: bool = False) -> None:
    """Write tables of that schema one after the other as one Parquet file.

    With ``coded`` they are of the ``coded_schema``. A reader gets the texts all the same, and writing them takes less
    time.
    """
    own = coded_schema(schema) if coded else schema
    # The least and the greatest text of each part of a column are found by comparing all: a quarter of the time.
    ranges = [field.name for field in own if field.type != _CODED_TEXT]
    # Arrow's own schema would say that the columns are codes. Without it, its metadata are not written either.
    settings: dict[str, Any] = {"compression": "zstd", "store_schema": not coded, "write_statistics": ranges}
    with naming(path), pq.ParquetWriter(path, own, **settings) as file:
        if coded:
            file.add_key_value_metadata({name.decode(): text.decode() for name, text in schema.metadata.items()})
        for table in tables:
            file.write_table(table)


def _with_later_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    lacking = [field for field in schema if field.name in LATER_COLUMNS and field.name not in table.schema.names]
    for field in lacking:
        table = table.append_column(field, pa.nulls(len(table), field.type))
    return table.select(schema.names) if lacking and set(table.schema.names) == set(schema.names) else table


def version_of(schema: pa.Schema) -> str:
    """Return the version that a file's own schema names, "none" if it names none."""
    return (schema.metadata or {}).get(VERSION_KEY, b"none").decode(errors="replace")


def coded_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with text columns as codes into their distinct texts."""
    fields = [field.with_type(_CODED_TEXT) if field.type == pa.string() else field for field in schema]
    return pa.schema(fields).with_metadata(schema.metadata)


def _lacks_resources(fault: Exception) -> bool:
    """Return whether reading failed for lack of memory, threads or descriptors, which says nothing of the file."""
    # Arrow has no kind of its own for a thread that does not start.
    kindless = type(fault) is pa.ArrowException
    return kindless or isinstance(fault, MemoryError) or getattr(fault, "errno", None) in _LACKS


def read_tables(paths: Iterable[Path], schema: pa.Schema, *, coded: bool = False) -> pa.Table:
    """Read and join Parquet files of one schema, of this version or an earlier one; none gives an empty table.

    With ``coded`` the table has the ``coded_schema``, which takes a quarter of the time. Spans have ``VIRTUAL_STAGE``
    too if any of the files has.

    Raises ValueError naming the file if one is missing, not Parquet, of another version, or has other columns;
    MemoryError if this process may not have what reading takes.
    """
    result = coded_schema(schema) if coded else schema
    coded_spans = coded_schema(SPANS_OF_VIRTUAL_STAGES) if coded else SPANS_OF_VIRTUAL_STAGES
    # Not empty_table: that loads pandas.
    tables = [pa.Table.from_batches([], result)]
    for path in paths:
        try:
            file = pq.ParquetFile(regular_file(path))
            if coded:
                text = [field.name for field in file.schema_arrow if field.type == pa.string()]
                file = pq.ParquetFile(path, read_dictionary=text)
            table = file.read()
        except FileNotFoundError:
            raise ValueError(f"{path} is missing") from None
        except (OSError, pa.ArrowException) as fault:
            reason = getattr(fault, "strerror", None) or fault
            if _lacks_resources(fault):
                raise MemoryError(f"{path}: {reason}") from None
            raise ValueError(f"{path}: not a Parquet file that can be read: {reason}") from None
        version = version_of(table.schema)
        if version in EARLIER_VERSIONS:
            try:
                table = upgraded(_with_later_columns(renamed(_with_texts(table)), schema), schema)
            except pa.ArrowException as fault:
                raise ValueError(f"{path}: its columns are not those of its schema version: {fault}") from None
        elif version == str(SCHEMA_VERSION):
            table = _with_later_columns(table, schema)
        else:
            readable = ", ".join(EARLIER_VERSIONS)
            raise ValueError(f"{path}: schema version {version}, this program reads {readable} and {SCHEMA_VERSION}")
        divided = schema is SPANS and VIRTUAL_STAGE in table.schema.names
        own, own_result = (SPANS_OF_VIRTUAL_STAGES, coded_spans) if divided else (schema, result)
        if table.schema.equals(own) and coded:
            table = table.cast(own_result)
        if not table.schema.equals(own_result):
            raise ValueError(f"{path}: its columns are not those of schema version {SCHEMA_VERSION}")
        tables.append(table)
    return pa.concat_tables(tables, promote_options="default")


def _with_texts(table: pa.Table) -> pa.Table:
    """Return the table with texts in place of codes."""
    fields = [field.with_type(pa.string()) if field.type == _CODED_TEXT else field for field in table.schema]
    return table.cast(pa.schema(fields).with_metadata(table.schema.metadata))
