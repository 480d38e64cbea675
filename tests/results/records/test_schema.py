import pyarrow as pa
import pytest

from wanbed.results.records.schema import (
    CALIBRATION,
    IMPAIRMENT_COLUMNS,
    LINK_SAMPLES,
    SPANS,
    SPANS_OF_VIRTUAL_STAGES,
    TCP_SAMPLES,
    CalibrationRow,
    LinkSample,
    TcpSample,
)
from wanbed.results.records.span_log import Span


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
    assert set(Span._fields) <= set(SPANS_OF_VIRTUAL_STAGES.names)
    assert SPANS_OF_VIRTUAL_STAGES.names == [*SPANS.names, "virtual_stage"]
