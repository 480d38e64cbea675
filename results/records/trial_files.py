"""Read the tables of a finished trial as checked Arrow tables: one reader for all commands."""

from pathlib import Path
from typing import Any, get_args, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wanbed.ground.files import regular_file
from wanbed.results.records.run_store import RunError, point_path
from wanbed.results.records.schema import CALIBRATION, IMPAIRMENT_COLUMNS, SPLITS, CalibrationRow
from wanbed.results.records.schema_upgrade import FIRST_VERSION
from wanbed.results.records.span_log import MAX_ITERATIONS, SPAN_KINDS
from wanbed.results.records.table_files import read_tables, version_of
from wanbed.results.records.trial_id import TrialId
from wanbed.results.records.trial_tables import PREFILL_REQUESTS_FILE, SPANS_FILE, TRIAL_TABLES

OUTCOMES = ("admitted", "off_loaded", "rejected", "held")

_KNOWN = {"kind": SPAN_KINDS, "outcome": OUTCOMES, "split": SPLITS}
_NOT_NEGATIVE = (
    "iteration",
    "loss",
    "start_ns",
    "time_ns",
    "arrival_ns",
    "size_bytes",
    "wire_bytes",
    "backlog_bytes",
    "drops",
    "utilization",
    "memory_used_bytes",
    "power_w",
    "sm_clock_hz",
    "memory_clock_hz",
)
# Sums and differences of two times must fit 64 bits.
_TIME_BOUND_NS = 2**62
_REMEDY = "the file is damaged: restore it, or run again"


def _optional(row: type) -> set[str]:
    return {name for name, kind in get_type_hints(row).items() if type(None) in get_args(kind)}


_NULLABLE = IMPAIRMENT_COLUMNS.union(
    _optional(CalibrationRow), *(_optional(table.row) for table in TRIAL_TABLES.values())
)


def read_trial_table(folder: Path, key: TrialId, name: str, *, coded: bool = False) -> pa.Table:
    """Read one of the Parquet files in a finished trial's folder, of which schema version 1 did not have all.

    A file that is written only where it has rows is empty elsewhere. ``coded`` is as in ``read_tables``.

    Raises RunError, one line that starts with the file's path and names the column, if it is missing or damaged, if its
    rows are another trial's, and if they hold what is impossible: a value missing, an end before its start, a negative
    time or one too large to calculate with.
    """
    path, known = folder / name, TRIAL_TABLES[name]
    may_lack = not known.always or (known.since_version > 1 and _of_first_version(folder / SPANS_FILE))
    if may_lack and not path.exists():
        return _read(None, known.columns, coded=coded)
    return _checked(_read(path, known.columns, coded=coded), path, key)


def checked_spans(table: pa.Table, folder: Path, key: TrialId) -> pa.Table:
    """Return the spans that this process has written to a trial's folder, checked as ``read_trial_table`` does."""
    _check_values(table, folder / SPANS_FILE)
    return _checked(table, folder / SPANS_FILE, key)


def _checked(table: pa.Table, path: Path, key: TrialId) -> pa.Table:
    """Return the table of one of the trial's files. Raise RunError for another trial's rows, or impossible times."""
    for column, own in zip(("sweep_point", "variant", "repeat"), key, strict=True):
        if _distinct(table.column(column)) - {own}:
            values = _plain(table.column(column))
            other = pc.not_equal(values, pa.scalar(own, values.type))
            _refuse(other, path, column, f"is not the trial's, {own!r}", table)
    if path.name == SPANS_FILE:
        early = pc.less(table.column("end_ns"), table.column("start_ns"))
        _refuse(early, path, "end_ns", "is before start_ns", table)
    if path.name == PREFILL_REQUESTS_FILE:
        for column in ("admitted_ns", "started_ns", "prefilled_ns", "kv_moved_ns"):
            early = pc.less(table.column(column), table.column("arrival_ns"))
            _refuse(early, path, column, "is before arrival_ns", table)
    return table


def read_calibration(path: Path) -> pa.Table:
    """Read what was measured in one sweep point. Raises RunError, as ``read_trial_table`` does."""
    table = _read(path, CALIBRATION)
    for point in pc.unique(table.column("sweep_point")).to_pylist():
        own = point_path(path.parent, int(point or 0), path.suffix)
        if path != own:
            raise RunError(f"{path}: column sweep_point: {point} belongs in {own.name}, {_REMEDY}")
    return table


def _of_first_version(spans: Path) -> bool:
    try:
        return version_of(pq.read_schema(regular_file(spans))) == FIRST_VERSION
    except (OSError, pa.ArrowException):
        return False


def _read(path: Path | None, schema: pa.Schema, *, coded: bool = False) -> pa.Table:
    try:
        table = read_tables([] if path is None else [path], schema, coded=coded)
        table.validate(full=True)
    except pa.ArrowException as fault:
        raise RunError(f"{path}: not what its columns say ({_one_line(fault)}), {_REMEDY}") from None
    except ValueError as fault:
        raise RunError(f"{_one_line(fault)}: restore it, or run again") from None
    if path is not None:
        _check_values(table, path)
    return table


def _check_values(table: pa.Table, path: Path) -> None:
    for column in table.column_names:
        values = table.column(column)
        if column not in _NULLABLE and values.null_count:
            _refuse(values.is_null(), path, column, "where a value has to be", table)
        if column in _NOT_NEGATIVE:
            _refuse(pc.less(values, pa.scalar(0, values.type)), path, column, "is negative", table)
        bound = MAX_ITERATIONS if column == "iteration" else _TIME_BOUND_NS if column.endswith("_ns") else None
        if bound is not None:
            beyond = pc.greater_equal(values, pa.scalar(bound, values.type))
            _refuse(beyond, path, column, f"is not below {bound}", table)
        if column in _KNOWN:
            for value in _distinct(values) - set(_KNOWN[column]):
                same = pc.equal(_plain(values), pa.scalar(value, pa.string()))
                _refuse(same, path, column, f"is none of {', '.join(_KNOWN[column])}", table)


def _distinct(values: "pa.ChunkedArray[Any]") -> set[Any]:
    return set(pc.unique(values).to_pylist())


def _plain(values: "pa.ChunkedArray[Any]") -> "pa.ChunkedArray[Any]":
    """Return texts in place of codes."""
    return values.cast(pa.string()) if pa.types.is_dictionary(values.type) else values


def _refuse(
    wrong: "pa.ChunkedArray[Any] | pa.BooleanArray", path: Path, column: str, fault: str, table: pa.Table
) -> None:
    """Raise RunError with the first row at which ``wrong`` is true, if there is one."""
    # To find the first one takes many times as long as to see that there is none.
    if pc.any(wrong).as_py():
        row = pc.index(wrong, value=True).as_py()
        value = "nothing" if (found := table.column(column)[row].as_py()) is None else repr(found)
        raise RunError(f"{path}: column {column}, row {row}: {value} {fault}, {_REMEDY}")


def _one_line(fault: Exception) -> str:
    return str(fault).replace("\n", " ")
