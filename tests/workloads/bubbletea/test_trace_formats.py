import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.errors import InputError
from wanbed.workloads.bubbletea.trace_formats import (
    AZURE,
    AZURE_HEADER,
    MAX_TOKENS,
    MOONCAKE,
    ArrivalUnit,
    TraceColumns,
    format_of,
    parse_azure,
    parse_mooncake,
)
from wanbed.workloads.bubbletea.trace_reading import read_trace

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

tokens = st.integers(1, MAX_TOKENS)


def test_a_format_is_known_by_the_first_line() -> None:
    assert format_of(AZURE_HEADER) is AZURE
    assert format_of(b'{"timestamp": 0}') is MOONCAKE
    assert format_of(b"2023-11-16 18:17:03.9799600,4808,10") is None
    assert format_of(AZURE_HEADER + b",Model") is None


@given(
    st.datetimes(datetime(1970, 1, 1), datetime(2261, 12, 31)),
    st.integers(0, 999),
    tokens,
    tokens,
)
def test_an_azure_line_is_read_to_the_nanosecond(moment: datetime, ns: int, prompt: int, output: int) -> None:
    whole = moment.replace(tzinfo=UTC) - EPOCH
    expected_ns = whole // timedelta(microseconds=1) * 1000 + ns
    line = f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond:06d}{ns:03d},{prompt},{output}".encode()
    assert parse_azure(line) == (expected_ns, prompt, output)


def test_seven_fractional_digits_are_hundreds_of_nanoseconds() -> None:
    first, _, _ = parse_azure(b"2023-11-16 18:17:03.9799600,4808,10")
    second, _, _ = parse_azure(b"2023-11-16 18:17:03.9799601,4808,10")
    assert first == 1_700_158_623_979_960_000
    assert second - first == 100


@pytest.mark.parametrize("moment", ["2023-11-16 18:17:03", "2023-11-16T18:17:03Z", "2023-11-16 18:17:03.0+00:00"])
def test_fraction_and_zone_may_be_written_or_left_out(moment: str) -> None:
    assert parse_azure(f"{moment},1,1".encode()) == (1_700_158_623 * 10**9, 1, 1)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("2023-11-16 18:17:03.97,4808", "2 columns, 3 are wanted: TIMESTAMP,ContextTokens,GeneratedTokens"),
        ("2023-11-16 18:17:03.97,4808,10,1", "4 columns, 3 are wanted: TIMESTAMP,ContextTokens,GeneratedTokens"),
        ("2023-11-16 18:17:03.97,48o8,10", "ContextTokens: '48o8' is no count of tokens"),
        ("2023-11-16 18:17:03.97,4808,", "GeneratedTokens: '' is no count of tokens"),
        ("2023-11-16 18:17:03.97,4808,1.5", "GeneratedTokens: '1.5' is no count of tokens"),
        ("2023-11-16 18:17:03.97,-1,1", "ContextTokens: '-1' is no count of tokens"),
        ("2023-11-16 18:17:03.97,0,1", "ContextTokens: 0 is not in 1 to 1000000000"),
        ("2023-11-16 18:17:03.97,1,0", "GeneratedTokens: 0 is not in 1 to 1000000000"),
        ("2023-11-16 18:17:03.97,9999999999,1", "ContextTokens: 9999999999 is not in 1 to 1000000000"),
        ("16/11/2023 18:17:03,1,1", "TIMESTAMP: '16/11/2023 18:17:03' is not like 2023-11-16 18:17:03.9799600"),
        ("2023-11-16 18:17:03+01:00,1,1",
         "TIMESTAMP: '2023-11-16 18:17:03+01:00' is not like 2023-11-16 18:17:03.9799600"),
        ("2023-11-16 24:17:03,1,1", "TIMESTAMP: 2023-11-16 24:17:03 is no time of a day"),
        ("2023-11-16 23:59:60,1,1", "TIMESTAMP: 2023-11-16 23:59:60 is no time of a day"),
        ("2023-02-29 18:17:03,1,1", "TIMESTAMP: 2023-02-29 is no day of a calendar"),
        ("2262-01-01 18:17:03,1,1", "TIMESTAMP: the year 2262 is not in 1970 to 2261"),
        ("\x00\xff,1,1", r"TIMESTAMP: '\x00ÿ' is not like 2023-11-16 18:17:03.9799600"),
    ],
)  # fmt: skip
def test_an_unusable_azure_line_names_the_reason(line: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as text:
        parse_azure(line.encode())
    assert str(text.value) == reason


@given(st.integers(0, 9 * 10**12), tokens, tokens)
def test_a_mooncake_line_is_read_in_milliseconds(timestamp_ms: int, prompt: int, output: int) -> None:
    document = {"timestamp": timestamp_ms, "input_length": prompt, "output_length": output, "hash_ids": [1, 2]}
    assert parse_mooncake(json.dumps(document).encode()) == (timestamp_ms * 10**6, prompt, output)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"timestamp": 0, "input_length": 5', "not JSON: Expecting ',' delimiter at column 35"),
        ("[1, 2]", "not a JSON object"),
        ('{"timestamp": 0, "input_length": 5}', "output_length: this field is required"),
        ('{"timestamp": 0.5, "input_length": 5, "output_length": 1}', "timestamp: 0.5 is no whole number"),
        ('{"timestamp": NaN, "input_length": 5, "output_length": 1}', "timestamp: nan is no whole number"),
        ('{"timestamp": -1, "input_length": 5, "output_length": 1}', "timestamp: -1 is not in 0 to 9223372036854 ms"),
        ('{"timestamp": 9223372036855, "input_length": 5, "output_length": 1}',
         "timestamp: 9223372036855 is not in 0 to 9223372036854 ms"),
        ('{"timestamp": 0, "input_length": true, "output_length": 1}', "input_length: True is no whole number"),
        ('{"timestamp": 0, "input_length": "5", "output_length": 1}', "input_length: '5' is no whole number"),
        ('{"timestamp": 0, "input_length": 0, "output_length": 1}', "input_length: 0 is not in 1 to 1000000000"),
        ('{"timestamp": 0, "input_length": 5, "output_length": null}', "output_length: None is no whole number"),
        (f'{{"timestamp": 0, "input_length": {"9" * 100}, "output_length": 1}}',
         f"input_length: {'9' * 40}... is not in 1 to 1000000000"),
        (f'{{"timestamp": {"9" * 5000}}}', "a number in it has too many digits"),
        ("[" * 100_000, "not JSON: nested too deep"),
    ],
    ids=lambda text: text[:50],
)  # fmt: skip
def test_an_unusable_mooncake_line_names_the_reason(line: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as reported:
        parse_mooncake(line.encode())
    assert str(reported.value) == reason


@given(st.binary(max_size=60))
def test_random_bytes_are_refused_in_one_line(line: bytes) -> None:
    for parse in (parse_azure, parse_mooncake):
        with pytest.raises(ValueError, match=r".") as text:
            parse(line)
        assert len(str(text.value).splitlines()) == 1


OUT_OF_RANGE = "s is not in 0 to 9223372036854775807 ns"

NO_ARRAY = ":1: a JSON array: write each request as one JSON object on a line of its own"

SECONDS = TraceColumns("sent", "in", "out", ArrivalUnit.SECONDS)


def written_columns(folder: Path, *lines: str) -> Path:
    path = folder / "own.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def requests(path: Path, columns: TraceColumns) -> list[tuple[int, int, int]]:
    found = read_trace(path, columns=columns).requests
    return [(request.arrival_ns, request.prompt_tokens, request.output_tokens) for request in found]


def refusal(path: Path, columns: TraceColumns | None) -> str:
    with pytest.raises(InputError) as caught:
        read_trace(path, columns=columns)
    return str(caught.value).removeprefix(str(path))


def test_columns_are_found_by_their_names_wherever_they_stand(tmp_path: Path) -> None:
    path = written_columns(tmp_path, "out,user,in,sent", '8,"a, b",100,0.25', '9,c,200,"1.5"')
    assert requests(path, SECONDS) == [(0, 100, 8), (1_250_000_000, 200, 9)]


def test_fields_of_json_lines_are_found_by_their_names(tmp_path: Path) -> None:
    path = written_columns(
        tmp_path, '{"sent": 3, "in": 100, "out": 8}', '{"sent": 3.1, "in": 200, "out": 9, "user": 1}'
    )
    assert requests(path, SECONDS) == [(0, 100, 8), (100_000_000, 200, 9)]


@pytest.mark.parametrize(
    ("unit", "first", "second", "gap_ns"),
    [
        (ArrivalUnit.SECONDS, "1.5", "2", 500_000_000),
        (ArrivalUnit.MILLISECONDS, "1.5", "2", 500_000),
        (ArrivalUnit.MICROSECONDS, "1", "2", 1_000),
        (ArrivalUnit.NANOSECONDS, "1700000000000000001", "1700000000000000002", 1),
        (ArrivalUnit.UTC, "2023-11-16 23:59:59.9", "2023-11-17T00:00:00Z", 100_000_000),
    ],
)
def test_arrivals_are_in_the_unit_that_is_named(
    tmp_path: Path, unit: ArrivalUnit, first: str, second: str, gap_ns: int
) -> None:
    path = written_columns(tmp_path, "sent,in,out", f"{first},1,1", f"{second},1,1")
    assert [arrival for arrival, *_ in requests(path, TraceColumns("sent", "in", "out", unit))] == [0, gap_ns]


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=20))
def test_fractions_of_a_second_are_exact_to_the_nanosecond(
    tmp_path_factory: pytest.TempPathFactory, arrivals_ns: list[int]
) -> None:
    lines = [f"{arrival // 10**9}.{arrival % 10**9:09},1,1" for arrival in arrivals_ns]
    path = written_columns(tmp_path_factory.mktemp("trace"), "sent,in,out", *lines)
    assert [arrival for arrival, *_ in requests(path, SECONDS)] == [
        arrival - min(arrivals_ns) for arrival in sorted(arrivals_ns)
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("time,in,out", "1,1,1"), ":1: no column 'sent': the header has 'time', 'in', 'out'"),
        (("sent,in,in,out", "1,1,1,1"), ":1: more than one column 'in': the header has 'sent', 'in', 'in', 'out'"),
        (("sent,in,out", "1,1"), ":2: 2 columns, where the header has 3"),
        (("sent,in,out", "soon,1,1"), ":2: sent: 'soon' is no number of s"),
        (("sent,in,out", "-1,1,1"), ":2: sent: '-1' s is not in 0 to 9223372036854775807 ns"),
        (("sent,in,out", "nan,1,1"), ":2: sent: 'nan' is no number of s"),
        (("sent,in,out", "1,1.5,1"), ":2: in: '1.5' is no count of tokens"),
        (("sent,in,out", "1,0,1"), ":2: in: 0 is not in 1 to 1000000000"),
        (('{"sent": 1, "in": 1}',), ":1: out: this field is required"),
        (('{"sent": [], "in": 1, "out": 1}',), ":1: sent: [] is neither a number nor text"),
        (("sent,in,out", "1,1,1", "1e400,1,1"), f":3: sent: '1e400' {OUT_OF_RANGE}"),
        (("sent,in,out", "1e999999999999999999,1,1"), f":2: sent: '1e999999999999999999' {OUT_OF_RANGE}"),
        (("sent,in,out", f"1e{'9' * 30},1,1"), f":2: sent: '1e{'9' * 30}' {OUT_OF_RANGE}"),
        (
            ('{"sent": 1e999999999999999999, "in": 1, "out": 1}',),
            f":1: sent: '1e999999999999999999' {OUT_OF_RANGE}",
        ),
        (("sent,in,out", "٣,1,1"), ":2: sent: '٣' is no number of s"),
        (("sent,in,out", "1_0,1,1"), ":2: sent: '1_0' is no number of s"),
        (('{"sent": "1_0", "in": 1, "out": 1}',), ":1: sent: '1_0' is no number of s"),
        (
            ("user,sent,in,out", '"a', 'b",1,1,1'),
            ":2: a quoted field does not end in this line: write each request on one line, without line breaks in it",
        ),
        (("sent,in,out", '1,"1"x,1'), ":2: not CSV: ',' expected after '\"'"),
        (('[{"sent": 1, "in": 1, "out": 1},',), NO_ARRAY),
        (("[", '{"sent": 1, "in": 1, "out": 1}', "]"), NO_ARRAY),
    ],
)
def test_an_unusable_line_is_named_with_its_reason(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    assert refusal(written_columns(tmp_path, *lines), SECONDS) == message


@pytest.mark.parametrize("exponent", ["999999999999999999", "9" * 30])
def test_a_number_too_large_is_skipped_with_the_other_unusable_lines(tmp_path: Path, exponent: str) -> None:
    huge = f"1e{exponent}"
    for lines in (
        ("sent,in,out", f"{huge},1,1", "1,2,2"),
        (f'{{"sent": {huge}, "in": 1, "out": 1}}', '{"sent": 1, "in": 2, "out": 2}'),
    ):
        trace = read_trace(written_columns(tmp_path, *lines), columns=SECONDS, skip_bad_lines=True)
        assert (len(trace.requests), trace.skipped) == (1, 1)


@pytest.mark.parametrize("number", ["0.5", ".5", "+0.5", "5e-1", "5.E-1"])
def test_an_arrival_is_a_number_with_a_fraction_or_an_exponent(tmp_path: Path, number: str) -> None:
    path = written_columns(tmp_path, "sent,in,out", "0,1,1", f"{number},1,1")
    assert [arrival for arrival, *_ in requests(path, SECONDS)] == [0, 500_000_000]


def test_a_field_is_as_long_as_its_line_may_be(tmp_path: Path) -> None:
    path = written_columns(tmp_path, "user,sent,in,out", f'"{"a" * 500_000}",1,1,1')
    assert requests(path, SECONDS) == [(0, 1, 1)]


def test_a_json_array_is_refused_as_one_without_columns_too(tmp_path: Path) -> None:
    assert refusal(written_columns(tmp_path, '[{"timestamp": 0}]'), None) == NO_ARRAY


def test_a_header_may_begin_with_a_bracket(tmp_path: Path) -> None:
    assert requests(written_columns(tmp_path, "[user],sent,in,out", "a,1,1,1"), SECONDS) == [(0, 1, 1)]


def test_a_file_in_no_known_format_is_refused_with_the_remedy(tmp_path: Path) -> None:
    assert "name its columns in prefill.columns" in refusal(written_columns(tmp_path, "sent,in,out", "1,1,1"), None)
