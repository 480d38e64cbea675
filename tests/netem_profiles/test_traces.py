"""Traces are read within bounds, row by row, and a fault is one line with file and line."""

import tracemalloc
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.netem_profiles.traces import (
    COLUMNS,
    MAX_TRACE_BYTES,
    PACKET_BITS,
    csv_text,
    csv_trace,
    mahimahi_trace,
    read_trace_text,
)
from wanbed.testbed.network.links.condition_trace import MAX_TRACE_NS, ConditionTrace, TraceRow

MS = 10**6

S = 10**9


def rows(text: str) -> list[tuple[int, dict[str, object], int]]:
    return [(row.at_ns, dict(row.values), row.line) for row in csv_trace(text, "f.csv", "f.csv").rows]


def refusal(text: str) -> str:
    return refused(lambda: csv_trace(text, "f.csv", "f.csv"))


def test_a_row_gives_the_cells_that_are_not_empty() -> None:
    text = "t_s,latency,rate,up\r\n# learnt from a log\r\n0,20ms,1Gbit,\r\n\r\n1.5,,unlimited,false\r\n"
    assert rows(text) == [
        (0, {"latency": 20 * MS, "rate": 10**9}, 3),
        (1_500 * MS, {"rate": None, "up": False}, 5),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "f.csv:1: empty: give a header"),
        ("t_s,rate\n", "f.csv:1: no row below the header"),
        ("rate\n1Gbit\n", "f.csv:1: no column t_s in the header"),
        ("t_s,rat\n0,1Gbit\n", "f.csv:1: no column 'rat', did you mean 'rate'?"),
        ("t_s,rate,rate\n0,1Gbit,1Gbit\n", "f.csv:1: the column rate is there twice"),
        ("t_s\n0\n", "f.csv:1: no column but t_s"),
        ("t_s,rate\n5,1Gbit\n4,2Gbit\n", "f.csv:3: t_s: '4' is before line 2: times rise"),
        ("t_s,rate\n5,1Gbit\n5.0,2Gbit\n", "f.csv:3: t_s: '5.0' is the same time as line 2: times rise"),
        ("t_s,rate\n-1,1Gbit\n", "f.csv:2: t_s: '-1' is no time"),
        ("t_s,rate\nnan,1Gbit\n", "f.csv:2: t_s: 'nan' is no time"),
        ("t_s,rate\n1e3,1Gbit\n", "f.csv:2: t_s: '1e3' is no time"),
        ("t_s,rate\n,1Gbit\n", "f.csv:2: t_s: '' is no time"),
        ("t_s,rate\n1700000000,1Gbit\n", "f.csv:2: t_s: '1700000000' is more than 31 days"),
        ("t_s,rate\n0,1000\n", "f.csv:2: rate: '1000' is not a rate: write it like"),
        ("t_s,rate\n0,-1Gbit\n", "f.csv:2: rate: '-1Gbit' is negative"),
        ("t_s,rate\n0,NaN\n", "f.csv:2: rate: 'NaN' is not a rate"),
        ("t_s,rate\n0,0bit\n", "f.csv:2: rate: '0bit' is below 1 bit/s"),
        ("t_s,latency\n0,61s\n", "f.csv:2: latency: 61s is above the 60s that a link may have"),
        ("t_s,loss\n0,101%\n", "f.csv:2: loss: '101%' is above 100%"),
        ("t_s,up\n0,maybe\n", "f.csv:2: up: 'maybe' is neither true nor false"),
        ("t_s,rate\n0,1Gbit,2Gbit\n", "f.csv:2: 3 cells under a header of 2"),
        ('t_s,rate\n0,"1Gbit\n', "f.csv:2: not CSV: "),
        (f"t_s,rate\n0,{'1' * 2000}bit\n", "f.csv:2: longer than 1000 characters"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line_with_its_place(text: str, line: str) -> None:
    assert refusal(text).startswith(line)
    assert "\n" not in refusal(text)


def test_more_rows_than_a_course_may_have_are_refused_before_they_are_read() -> None:
    assert refusal("t_s,rate\n" + "x\n" * 100_001).startswith(
        "f.csv:100002: one of 100002 lines, where a trace has 100000"
    )


def test_ten_million_lines_are_refused_without_reading_them_all(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_bytes(b"t_s,rate\n" + b"0,1Gbit\n" * 10_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"long\.csv:\d+: more than 4 MiB up to here"):
            read_trace_text(path)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 3 * MAX_TRACE_BYTES < path.stat().st_size // 6


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"t_s,rate\n0,\xff\n", ":2: not UTF-8 text"),
        (b"\x7fELF\x00\x00", ":1: not UTF-8 text"),
        (b"t_s,rate\n" + b"#" * MAX_TRACE_BYTES, ":2: more than 4 MiB"),
    ],
)
def test_a_file_that_is_no_text_is_refused(content: bytes, text: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"trace.csv{text}"):
        read_trace_text(path)


def test_a_folder_and_no_file_are_refused(tmp_path: Path) -> None:
    for path, reason in ((tmp_path, "Is a directory"), (tmp_path / "absent.csv", "No such file")):
        with pytest.raises(InputError, match=reason):
            read_trace_text(path)


delays = st.integers(0, 60 * S)
values = st.fixed_dictionaries(
    {},
    optional={
        "latency": delays,
        "jitter": delays,
        "rate": st.none() | st.integers(1, 10**15),
        "node_pair_rate": st.none() | st.integers(1, 10**15),
        "loss": st.integers(0, 10**6).map(lambda parts: float(Decimal(parts) / 10**6)),
        "up": st.booleans(),
    },
)


@given(st.dictionaries(st.integers(0, MAX_TRACE_NS), values, min_size=1, max_size=20))
def test_a_trace_that_is_written_reads_back_to_the_same(found: dict[int, dict[str, object]]) -> None:
    at_ns = sorted(found)
    trace = ConditionTrace("f", "f", tuple(TraceRow(each, found[each], 2 + row) for row, each in enumerate(at_ns)))
    if trace.fields:
        assert csv_trace(csv_text(trace), "f", "f") == trace


@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from(["t_s", "rate", ",", "\n", "0", "1Gbit", '"', "nan", " "])).map("".join)
)
def test_any_text_is_a_trace_or_one_line(text: str) -> None:
    fault = ""
    try:
        assert csv_trace(text, "f.csv", "f.csv").fields <= set(COLUMNS)
    except InputError as refused:
        fault = str(refused)
    assert not fault or (fault.startswith("f.csv:") and len(fault.splitlines()) == 1)


WINDOW_NS = 100 * MS


def rates(times_ms: list[int]) -> list[tuple[int, int]]:
    trace = mahimahi_trace("".join(f"{each}\n" for each in times_ms), "f", "f", WINDOW_NS)
    return [(row.at_ns // MS, row.values["rate"]) for row in trace.rows]


def test_ten_packets_in_a_window_are_its_rate() -> None:
    assert rates([*range(10, 101, 10), 150, 200]) == [(0, 1_200_000), (100, 240_000)]


def test_a_window_without_a_packet_is_one_with_the_next_that_has_one() -> None:
    assert rates([100, 400]) == [(0, 120_000), (100, 40_000)]


def test_a_last_window_that_is_short_is_one_with_the_one_before() -> None:
    assert rates([50, 100, 120]) == [(0, round(3 * PACKET_BITS / 0.12))]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "f:1: the trace ends at 0 ms"),
        ("0\n0\n", "f:2: the trace ends at 0 ms"),
        ("5\n4\n", "f:2: 4 is before 5"),
        ("1.5\n", "f:1: '1.5' is no time"),
        ("-1\n", "f:1: '-1' is no time"),
        ("99999999999\n", "f:1: 99999999999 ms is more than 31 days"),
    ],
)
def test_what_is_none_is_refused_with_its_line(text: str, line: str) -> None:
    assert refused(lambda: mahimahi_trace(text, "f", "f", WINDOW_NS)).startswith(line)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=200).map(sorted).filter(lambda times: times[-1] > 0))
def test_the_rates_carry_every_packet_of_the_trace(times_ms: list[int]) -> None:
    found = rates(times_ms)
    ends = [at_ms for at_ms, _ in found[1:]] + [times_ms[-1]]
    bits = sum(rate * (end - begin) / 1e3 for (begin, rate), end in zip(found, ends, strict=True))
    assert bits == pytest.approx(len(times_ms) * PACKET_BITS, rel=1e-3, abs=10)
    assert all(rate > 0 for _, rate in found)
