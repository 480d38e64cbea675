from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from results.records.schema import (
    CALIBRATION,
    IMPAIRMENT_COLUMNS,
    LATER_COLUMNS,
    LINK_SAMPLES,
    SPANS,
    TCP_SAMPLES,
    CalibrationRow,
    LinkSample,
    TcpSample,
    read_tables,
    write_table,
)
from results.records.span_log import Span

SAMPLE = ("link", "east", "west", 1500, 1, 0, 0)


@pytest.mark.parametrize("schema", [SPANS, LINK_SAMPLES, TCP_SAMPLES, CALIBRATION])
def test_every_column_says_what_it_means(schema: pa.Schema) -> None:
    for column in schema:
        assert len((column.metadata or {})[b"meaning"]) > 10


@pytest.mark.parametrize(
    ("row", "schema", "before"),
    [(LinkSample, LINK_SAMPLES, 3), (TcpSample, TCP_SAMPLES, 3)],
)
def test_rows_have_the_columns_of_their_table(row: type[LinkSample], schema: pa.Schema, before: int) -> None:
    assert list(row._fields) == schema.names[before:]


def test_a_calibrations_row_has_its_impairments_in_columns_of_their_own() -> None:
    fields = [name for name in CalibrationRow._fields if name != "impairments"]
    assert {*fields, *IMPAIRMENT_COLUMNS, "sweep_point"} == set(CALIBRATION.names)
    row = CalibrationRow("east", "west", "wan", 20.0, 20.1, None, 9e6, {"configured_loss": 0.01}, True, burst_bytes=7)
    found = dict(zip(CALIBRATION.names[1:], row.in_columns(), strict=True))
    assert {name: found[name] for name in ("measured_goodput_bps", "within_tolerance", "burst_bytes")} == {
        "measured_goodput_bps": 9e6,
        "within_tolerance": True,
        "burst_bytes": 7,
    }
    assert {name: found[name] for name in IMPAIRMENT_COLUMNS if found[name] is not None} == {"configured_loss": 0.01}


def test_the_spans_table_holds_every_field_of_a_span() -> None:
    assert set(Span._fields) <= set(SPANS.names)


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
    assert schema.metadata[b"wanbed.schema_version"] == b"4"
    assert schema.field("configured_rtt_ms").metadata[b"meaning"] == b"round-trip time the topology asks for"


def test_another_version_is_refused(tmp_path: Path) -> None:
    pq.write_table(SPANS.empty_table().replace_schema_metadata({"wanbed.schema_version": "9"}), tmp_path / "old")
    with pytest.raises(ValueError, match="schema version 9, this program reads 1, 2, 3 and 4"):
        read_tables([tmp_path / "old"], SPANS)


def test_other_columns_are_refused(tmp_path: Path) -> None:
    write_table(tmp_path / "samples", LINK_SAMPLES, [])
    with pytest.raises(ValueError, match="columns are not those"):
        read_tables([tmp_path / "samples"], SPANS)


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "torn").write_text("PAR1")
    with pytest.raises(ValueError, match="torn: not a Parquet file"):
        read_tables([tmp_path / "torn"], SPANS)


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
