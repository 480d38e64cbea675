"""Read the tables of one trial as columns of numbers; texts are stored as codes into a list of values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.schema import VIRTUAL_STAGE
from wanbed.results.records.span_columns import Column
from wanbed.results.records.trial_files import read_trial_table

NO_VIRTUAL_STAGE = -1
Rows = npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice


@dataclass(frozen=True)
class Texts:
    """A column of texts: row ``i`` is ``values[codes[i]]``."""

    codes: Column
    values: tuple[str, ...]

    def mapped(self, number: Callable[[str], int]) -> Column:
        """Return for every row the result of ``number`` for its text; it is called once per distinct text."""
        return np.array([number(value) for value in self.values], np.int64)[self.codes]

    def equal(self, text: str) -> npt.NDArray[np.bool_]:
        """Return for every row whether it equals ``text``."""
        equal: npt.NDArray[np.bool_] = np.array([value == text for value in self.values], bool)[self.codes]
        return equal

    def __getitem__(self, rows: Rows) -> "Texts":
        return Texts(self.codes[rows], self.values)


@dataclass(frozen=True)
class Spans:
    """The spans of one trial: those columns of ``wanbed.results.records.schema.SPANS`` that a trace shows.

    ``virtual_stage`` is NO_VIRTUAL_STAGE where stages are not divided, and for what concerns none.
    """

    rank: Column
    host: Texts
    datacenter: Texts
    gpu: Column
    pipeline: Column
    stage: Column
    iteration: Column
    microbatch: Column
    kind: Texts
    start_ns: Column
    end_ns: Column
    size_bytes: Column
    peer: Texts
    tensor: Texts
    request: Column
    virtual_stage: Column

    def __len__(self) -> int:
        return len(self.start_ns)

    def __getitem__(self, rows: Rows) -> "Spans":
        return Spans(**{name: column[rows] for name, column in vars(self).items()})


@dataclass(frozen=True)
class LinkCounters:
    """The link samples of one trial: columns of ``wanbed.results.records.schema.LINK_SAMPLES``."""

    time_ns: Column
    scope: Texts
    source: Texts
    destination: Texts
    wire_bytes: Column
    backlog_bytes: Column


@dataclass(frozen=True)
class TcpColumns:
    """The state of the connections in one trial: columns of ``wanbed.results.records.schema.TCP_SAMPLES``."""

    time_ns: Column
    source: Texts
    destination: Texts
    rtt_ns: Column
    cwnd_segments: Column
    mss_bytes: Column
    retransmitted_segments: Column


_T = TypeVar("_T")


def read_columns(kind: type[_T], trial: StoredTrial, name: str) -> _T:
    """Read one of the classes above from the Parquet file of that name in the trial's folder.

    Raise RunError, one line that starts with the file's path, if the file is missing or damaged.
    """
    table = read_trial_table(trial.folder, trial.id, name)
    columns: dict[str, Column | Texts] = {}
    for field in kind.__annotations__:
        if field == VIRTUAL_STAGE:
            columns[field] = _virtual_stages(table)
            continue
        column = table.column(field).combine_chunks()
        columns[field] = _texts(column) if pa.types.is_string(column.type) else np.from_dlpack(column).astype(np.int64)
    return kind(**columns)


def _virtual_stages(spans: pa.Table) -> Column:
    """Return the virtual stage of each span, NO_VIRTUAL_STAGE where there is none."""
    if VIRTUAL_STAGE not in spans.column_names:
        return np.full(len(spans), NO_VIRTUAL_STAGE)
    own = spans.column(VIRTUAL_STAGE).combine_chunks()
    filled = pc.fill_null(own, pa.scalar(NO_VIRTUAL_STAGE, own.type))
    return np.from_dlpack(filled).astype(np.int64)


def _texts(column: "pa.Array[Any]") -> Texts:
    coded = column.dictionary_encode()
    return Texts(np.from_dlpack(coded.indices).astype(np.int64), tuple(map(str, coded.dictionary.to_pylist())))
