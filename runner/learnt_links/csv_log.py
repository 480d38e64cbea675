"""Read a log of packets from CSV: ``send_s,size_bytes,arrival_s``, one packet a line, an empty arrival for a lost one.

Times are seconds with at most nine decimals, read exactly: as binary floating point, a time since 1970 would lose its
last digits. Lines are read in blocks: a million of them take about 1 s of a core, and 24 bytes of memory each stay.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from wanbed.ground.errors import InputError, shown
from wanbed.ground.files import regular_file
from wanbed.runner.learnt_links.packet_log import LOST_NS, Integers, PacketFaultError, PacketLog, from_first

SEND, SIZE, ARRIVAL = "send_s", "size_bytes", "arrival_s"
COLUMNS = (SEND, SIZE, ARRIVAL)
HEADER = ",".join(COLUMNS)
_HEADER_BYTES = 200
_BLOCK_BYTES = 8 * 2**20

_SECONDS = r"[0-8]?\d{1,9}(\.\d{1,9})?"
"""Up to 8,999,999,999 s, which fits in 64 bits as nanoseconds."""

_FORMS = {
    SEND: (f"^{_SECONDS}$", "seconds, zero or more, like 12.000250"),
    SIZE: (r"^\d{1,6}$", "a whole number of bytes, like 1250"),
    ARRIVAL: (f"^({_SECONDS})?$", "seconds, zero or more, like 12.040250, or empty for a lost packet"),
}

_FIRST_LINE = 2
_BROKEN_LINE = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)


def read_csv_log(path: Path) -> PacketLog:
    """Return the log in a CSV file. Raise InputError with one line, ``file:line: column: remedy``, for the first fault.

    Raise OSError if the file cannot be read.
    """
    _check_header(path)
    blocks: list[tuple[Integers, Integers, Integers]] = []
    line = _FIRST_LINE
    for table in _blocks(path):
        _check_forms(path, table, line)
        blocks.append((_nanoseconds(table[SEND]), _whole(table[SIZE]), _nanoseconds(table[ARRIVAL])))
        line += table.num_rows
    if line == _FIRST_LINE:
        raise InputError(f"{path}: holds no packet: write one line for each below {HEADER}")
    send_ns, size_bytes, arrival_ns = (np.concatenate(column) for column in zip(*blocks, strict=True))
    try:
        return from_first(send_ns, size_bytes, arrival_ns)
    except PacketFaultError as fault:
        raise InputError(f"{path}:{_FIRST_LINE + fault.row}: this packet {fault}") from None


def _check_header(path: Path) -> None:
    with regular_file(path).open("rb") as file:
        first = file.readline(_HEADER_BYTES).decode("utf-8-sig", errors="replace").rstrip("\r\n")
    if not first:
        raise InputError(f"{path}: is empty: the first line of a log is {HEADER}")
    if tuple(first.split(",")) != COLUMNS:
        raise InputError(f"{path}:1: {shown(first)} is no log of packets: its first line is {HEADER}")


def _blocks(path: Path) -> Iterator[pa.Table]:
    """Yield the rows in blocks, every cell as text. A line with more or fewer cells is refused."""
    try:
        with csv.open_csv(
            path,
            read_options=csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
            parse_options=csv.ParseOptions(quote_char=False, ignore_empty_lines=False, newlines_in_values=False),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(COLUMNS, pa.string()), strings_can_be_null=False
            ),
        ) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])
    except pa.ArrowInvalid as fault:
        # Arrow's handler of such lines is no way to them: it prints a traceback for a line that is not UTF-8.
        if broken := _BROKEN_LINE.search(str(fault)):
            number, expected, found, text = broken.groups()
            raise InputError(
                f"{path}:{number}: {shown(text)} has {found} of {expected} cells: write {HEADER}"
            ) from None
        if "Empty CSV file" in str(fault):
            return
        raise InputError(f"{path}: {' '.join(str(fault).split())}: write {HEADER} as UTF-8 text") from None


def _check_forms(path: Path, table: pa.Table, line: int) -> None:
    faults = []
    for name, (form, remedy) in _FORMS.items():
        right = pc.match_substring_regex(table[name], form)
        wrong = pc.index(right, pa.scalar(False)).as_py()
        if wrong >= 0:
            faults.append((wrong, name, remedy))
    if faults:
        row, name, remedy = min(faults)
        cell = table[name][row].as_py()
        what = "is empty" if not cell else "is negative" if re.match(r"\s*-\s*\d", cell) else f"{shown(cell)} is wrong"
        raise InputError(f"{path}:{line + row}: {name}: {what}: give {remedy}")


def _nanoseconds(column: "pa.ChunkedArray[Any]") -> Integers:
    """Return texts of seconds as whole nanoseconds, ``LOST_NS`` for an empty one."""
    filled = pc.if_else(pc.equal(column, pa.scalar("")), pa.scalar(None, pa.string()), column)
    exact = pc.cast(filled, pa.decimal128(19, 9))
    scaled = pc.multiply(exact, pa.scalar(10**9, pa.decimal128(10, 0)))
    whole: Any = pc.cast(scaled, pa.int64())
    return np.asarray(whole.fill_null(LOST_NS), dtype=np.int64)


def _whole(column: "pa.ChunkedArray[Any]") -> Integers:
    return np.asarray(pc.cast(column, pa.int64()), dtype=np.int64)
