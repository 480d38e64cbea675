import errno
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wanbed.results.records.schema import (
    CALIBRATION,
    LATER_COLUMNS,
    LINK_SAMPLES,
    SPANS,
    SPANS_OF_VIRTUAL_STAGES,
    CalibrationRow,
)
from wanbed.results.records.table_files import read_tables, write_table

SAMPLE = ("link", "east", "west", 1500, 1, 0, 0)


def test_spans_of_divided_stages_read_back_beside_others(tmp_path: Path) -> None:
    place = ("gpipe", 0, 0, "east-0", "east", 0, 0, 0)
    row = (0, *place, 1, 2, "forward", 3, 4, 0, "", "", -1)
    write_table(tmp_path / "whole", SPANS, [row])
    write_table(tmp_path / "divided", SPANS_OF_VIRTUAL_STAGES, [(*row, 5), (*row, None)])
    assert read_tables([tmp_path / "whole"], SPANS).schema.equals(SPANS)
    both = read_tables([tmp_path / "whole", tmp_path / "divided"], SPANS)
    assert both.column("virtual_stage").to_pylist() == [None, 5, None]


def test_rows_read_back_as_written_over_several_files(tmp_path: Path) -> None:
    for repeat in range(2):
        write_table(tmp_path / f"{repeat}", LINK_SAMPLES, [(0, "gpipe", repeat, 2**40 + repeat, *SAMPLE)])
    table = read_tables([tmp_path / "0", tmp_path / "1"], LINK_SAMPLES)
    assert table.column("time_ns").to_pylist() == [2**40, 2**40 + 1]
    assert table.column("repeat").to_pylist() == [0, 1]


def test_no_rows_and_no_files_give_the_same_columns(tmp_path: Path) -> None:
    write_table(tmp_path / "none", SPANS, [])
    assert read_tables([tmp_path / "none"], SPANS).schema.equals(read_tables([], SPANS).schema)


def test_a_file_tells_its_version_and_meanings_to_any_reader(tmp_path: Path) -> None:
    write_table(tmp_path / "calibration", CALIBRATION, [])
    schema = pq.read_schema(tmp_path / "calibration")
    assert schema.metadata[b"wanbed.schema_version"] == b"7"
    assert (
        schema.field("configured_rtt_ms").metadata[b"meaning"]
        == b"round-trip time of an echo that the topology asks for"
    )


def test_a_file_tells_the_range_of_each_column_of_numbers(tmp_path: Path) -> None:
    write_table(tmp_path / "links", LINK_SAMPLES, [(0, "gpipe", repeat, 2**40, *SAMPLE) for repeat in (3, 5)])
    part = pq.read_metadata(tmp_path / "links").row_group(0)
    ranges = {part.column(number).path_in_schema: part.column(number).statistics for number in range(part.num_columns)}
    assert (ranges["repeat"].min, ranges["repeat"].max) == (3, 5)


def test_another_version_is_refused(tmp_path: Path) -> None:
    pq.write_table(SPANS.empty_table().replace_schema_metadata({"wanbed.schema_version": "9"}), tmp_path / "old")
    with pytest.raises(ValueError, match="schema version 9, this program reads 1, 2, 3, 4, 5, 6 and 7"):
        read_tables([tmp_path / "old"], SPANS)


def test_other_columns_are_refused(tmp_path: Path) -> None:
    write_table(tmp_path / "samples", LINK_SAMPLES, [])
    with pytest.raises(ValueError, match="columns are not those"):
        read_tables([tmp_path / "samples"], SPANS)


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "torn").write_text("PAR1")
    with pytest.raises(ValueError, match="torn: not a Parquet file"):
        read_tables([tmp_path / "torn"], SPANS)


@pytest.mark.parametrize(
    "lack",
    [
        pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable"),
        pa.ArrowMemoryError("malloc of size 4194304 failed"),
        OSError(errno.EMFILE, "Too many open files"),
    ],
)
def test_a_file_is_not_blamed_for_what_the_process_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: Exception
) -> None:
    def lacking(*_: object) -> None:
        raise lack

    write_table(tmp_path / "spans", SPANS, [])
    monkeypatch.setattr(pq, "ParquetFile", lacking)
    with pytest.raises(MemoryError, match=r"spans: [^P]*$"):
        read_tables([tmp_path / "spans"], SPANS)


def test_a_table_from_before_later_columns_reads_with_nulls_in_their_place(tmp_path: Path) -> None:
    file = tmp_path / "calibration"
    write_table(file, CALIBRATION, [(0, *CalibrationRow("east", "west", "wan", 1, 1, 1, 1, {}, True).in_columns())])
    table = pq.read_table(file)
    older = table.drop_columns([name for name in table.schema.names if name in LATER_COLUMNS])
    pq.write_table(older.replace_schema_metadata(table.schema.metadata), file)
    read = read_tables([file], CALIBRATION)
    assert read.schema.equals(CALIBRATION)
    assert {value for name in LATER_COLUMNS for value in read.column(name).to_pylist()} == {None}
    assert read.column("measured_rtt_ms").to_pylist() == [1.0]
