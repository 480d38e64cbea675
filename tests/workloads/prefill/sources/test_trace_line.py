import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.prefill.sources.trace_line import (
    AZURE,
    AZURE_HEADER,
    MAX_TOKENS,
    MOONCAKE,
    format_of,
    parse_azure,
    parse_mooncake,
)

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
