import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.errors import InputError
from wanbed.workloads.bubbletea import trace_reading
from wanbed.workloads.bubbletea.request import Request
from wanbed.workloads.bubbletea.request_traces import RequestTrace, scaled
from wanbed.workloads.bubbletea.trace_formats import (
    ArrivalUnit,
    TraceColumns,
)
from wanbed.workloads.bubbletea.trace_reading import LONGEST_TICK_NS, read_trace, spread_evenly


def trace_of(arrivals_ns: list[int]) -> RequestTrace:
    return RequestTrace("a trace", tuple(Request(i, at, 10 + i, 1 + i) for i, at in enumerate(arrivals_ns)), skipped=3)


traces = st.lists(st.integers(0, 10**13), min_size=1, max_size=60).map(lambda gaps: trace_of([0, *sorted(gaps)]))

moving_traces = traces.filter(lambda trace: trace.span_ns > 0)


def test_a_trace_has_a_span_and_a_mean_rate() -> None:
    assert trace_of([0, 10**9, 4 * 10**9]).span_ns == 4 * 10**9
    assert trace_of([0, 10**9, 4 * 10**9]).mean_rate_per_s == 0.5
    assert trace_of([0, 0]).mean_rate_per_s == math.inf
    assert trace_of([0]).mean_rate_per_s == 0


@given(moving_traces, st.floats(1e-3, 1e3))
def test_a_scaled_trace_has_the_configured_mean_rate(trace: RequestTrace, rate_per_s: float) -> None:
    expected_ns = (len(trace.requests) - 1) / rate_per_s * 1e9
    assert scaled(trace, rate_per_s).span_ns == pytest.approx(expected_ns, rel=1e-12, abs=0.5)


@given(moving_traces, st.floats(1e-3, 1e3))
def test_a_scaled_trace_keeps_everything_but_the_time(trace: RequestTrace, rate_per_s: float) -> None:
    after = scaled(trace, rate_per_s)
    assert (after.name, after.skipped) == (trace.name, trace.skipped)
    assert [(r.number, r.prompt_tokens, r.output_tokens) for r in after.requests] == [
        (r.number, r.prompt_tokens, r.output_tokens) for r in trace.requests
    ]
    factor = after.span_ns / trace.span_ns
    for before, later in zip(trace.requests, after.requests, strict=True):
        assert later.arrival_ns == pytest.approx(before.arrival_ns * factor, rel=1e-9, abs=1)


@given(moving_traces)
def test_a_trace_scaled_to_its_own_rate_stays_as_it_is(trace: RequestTrace) -> None:
    after = scaled(trace, trace.mean_rate_per_s)
    for before, later in zip(trace.requests, after.requests, strict=True):
        assert abs(later.arrival_ns - before.arrival_ns) <= 1 + 1e-15 * trace.span_ns


@pytest.mark.parametrize("arrivals_ns", [[0], [0, 0, 0]])
def test_a_trace_without_a_rate_is_not_scaled(arrivals_ns: list[int]) -> None:
    with pytest.raises(InputError, match=r"^trace 'a trace': its requests arrive at one moment"):
        scaled(trace_of(arrivals_ns), 1.0)


@pytest.mark.parametrize("rate_per_s", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_none_is_refused(rate_per_s: float) -> None:
    with pytest.raises(ValueError, match=r"^rate_per_s: "):
        scaled(trace_of([0, 1]), rate_per_s)


@pytest.mark.parametrize(
    ("requests", "refusal"),
    [
        ((), "has none"),
        ((Request(0, 5, 1, 1),), "the first .* arrives later than at 0"),
        ((Request(1, 0, 1, 1),), "number 1 .* is out of order"),
        ((Request(0, 0, 1, 1), Request(1, 7, 1, 1), Request(2, 6, 1, 1)), "number 2 .* is out of order"),
    ],
)
def test_a_trace_that_cannot_be_is_refused(requests: tuple[Request, ...], refusal: str) -> None:
    with pytest.raises(ValueError, match=f"^requests: .*{refusal}"):
        RequestTrace("a trace", requests)


HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"

AZURE_LINES = ("2023-11-16 23:59:59.9999999,4808,10", "2023-11-17 00:00:00.0000001,3180,8", "2023-11-17 00:00:01,1,2")


def mooncake_line(timestamp_ms: int, prompt_tokens: int = 5) -> str:
    return f'{{"timestamp": {timestamp_ms}, "input_length": {prompt_tokens}, "output_length": 3, "hash_ids": [0]}}'


def written(folder: Path, *lines: str, end: str = "\n", last_end: str | None = None) -> Path:
    path = folder / "some.trace"
    path.write_bytes((end.join(lines) + (end if last_end is None else last_end)).encode())
    return path


def arrivals_ns(trace: RequestTrace) -> list[int]:
    return [request.arrival_ns for request in trace.requests]


@pytest.mark.parametrize("end", ["\r\n", "\n"])
@pytest.mark.parametrize("last_end", ["", "\r\n", "\n", "\n\n\n"])
def test_an_azure_trace_is_read_whatever_ends_its_lines(tmp_path: Path, end: str, last_end: str) -> None:
    trace = read_trace(written(tmp_path, HEADER, *AZURE_LINES, end=end, last_end=last_end))
    assert (trace.name, trace.skipped) == ("some", 0)
    assert [(r.number, r.arrival_ns, r.prompt_tokens, r.output_tokens) for r in trace.requests] == [
        (0, 0, 4808, 10),
        (1, 200, 3180, 8),
        (2, 1_000_000_100, 1, 2),
    ]


def test_the_format_is_reported_by_the_content_and_not_by_the_name(tmp_path: Path) -> None:
    path = tmp_path / "misnamed.csv"
    path.write_text(mooncake_line(7) + "\n")
    trace = read_trace(path)
    assert (trace.name, arrivals_ns(trace), trace.requests[0].output_tokens) == ("misnamed", [0], 3)


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    assert arrivals_ns(read_trace(written(tmp_path, "\ufeff" + HEADER, AZURE_LINES[0]))) == [0]


def test_requests_of_a_tick_are_spread_evenly_over_the_shortest_time_between_two_ticks(tmp_path: Path) -> None:
    path = written(tmp_path, *map(mooncake_line, (3000, 3000, 3000, 5998, 9000, 9000)))
    assert arrivals_ns(read_trace(path)) == [
        tenth_ms * 10**5 // 3 for tenth_ms in (0, 29_980, 2 * 29_980, 3 * 29_980, 3 * 60_000, 3 * 60_000 + 3 * 14_990)
    ]


def test_requests_of_a_tick_stay_a_burst_if_that_is_wanted(tmp_path: Path) -> None:
    path = written(tmp_path, *map(mooncake_line, (3000, 3000, 3000, 5998)))
    assert arrivals_ns(read_trace(path, spread_ticks=False)) == [0, 0, 0, 2_998_000_000]


def test_a_burst_of_one_tick_alone_stays_a_burst(tmp_path: Path) -> None:
    assert arrivals_ns(read_trace(written(tmp_path, *[mooncake_line(3000)] * 3))) == [0, 0, 0]


def test_azures_clock_is_fine_and_equal_times_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, AZURE_LINES[0], AZURE_LINES[0], AZURE_LINES[1])
    assert arrivals_ns(read_trace(path)) == [0, 0, 200]


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=80), st.integers(1, 10**10))
def test_spreading_keeps_order_and_every_request_within_its_tick(ticks: list[int], tick_ns: int) -> None:
    before = np.array(sorted(tick // tick_ns * tick_ns for tick in ticks))
    after = spread_evenly(before).tolist()
    assert after == sorted(after)
    assert all(0 <= late - early < LONGEST_TICK_NS or late == early for early, late in zip(before, after, strict=True))
    following = {early: late for early, late in zip(before.tolist(), before.tolist()[1:], strict=False) if late > early}
    assert all(late < following.get(early, late + 1) for early, late in zip(before.tolist(), after, strict=True))
    for tick, count in Counter(before.tolist()).items():
        own = [late for early, late in zip(before.tolist(), after, strict=True) if early == tick]
        gaps = np.diff(own)
        assert own[0] == tick
        assert count == 1 or gaps.max() - gaps.min() <= 1


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_lines_out_of_order_are_sorted_and_those_of_one_moment_keep_their_order(
    tmp_path_factory: pytest.TempPathFactory, moments: list[int]
) -> None:
    lines = [mooncake_line(moment, prompt_tokens=place + 1) for place, moment in enumerate(moments)]
    trace = read_trace(written(tmp_path_factory.mktemp("trace"), *lines), spread_ticks=False)
    expected = sorted((moment, place + 1) for place, moment in enumerate(moments))
    assert [(r.arrival_ns // 10**6 + min(moments), r.prompt_tokens) for r in trace.requests] == expected
    assert [r.number for r in trace.requests] == list(range(len(moments)))


def test_an_unusable_line_is_reported_by_file_line_and_reason(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, AZURE_LINES[0], "", "2023-11-17 00:00:00,many,8", AZURE_LINES[2])
    with pytest.raises(InputError) as text:
        read_trace(path)
    assert str(text.value) == f"{path}:4: ContextTokens: 'many' is no count of tokens"


def test_unusable_lines_are_counted_where_they_are_to_be_skipped(tmp_path: Path) -> None:
    azure = written(tmp_path, HEADER, "nothing", AZURE_LINES[0], "2023-11-17 00:00:00,many,8", AZURE_LINES[2])
    trace = read_trace(azure, skip_bad_lines=True)
    assert (trace.skipped, [r.prompt_tokens for r in trace.requests]) == (2, [4808, 1])
    mooncake = written(tmp_path, "{", mooncake_line(0), HEADER, "\x00\xff", mooncake_line(3000))
    trace = read_trace(mooncake, skip_bad_lines=True)
    assert (trace.skipped, arrivals_ns(trace)) == (3, [0, 3 * 10**9])


def test_a_line_without_end_is_unusable_and_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_reading, "MAX_LINE_BYTES", 100)
    path = written(tmp_path, mooncake_line(0), "{" * 1000, mooncake_line(1), "{" * 101, "{" * 100, last_end="")
    with pytest.raises(InputError, match=r"\.trace:2: longer than 100 bytes$"):
        read_trace(path)
    trace = read_trace(path, skip_bad_lines=True)
    assert (trace.skipped, len(trace.requests)) == (3, 2)
    with pytest.raises(InputError, match=r"\.trace:5: not JSON"):
        read_trace(written(tmp_path, *[mooncake_line(0)] * 4, "{" * 100))


@pytest.mark.parametrize(
    ("lines", "refusal"),
    [
        ((), r": no request in it, it is empty$"),
        (("", "", ""), r": no request in it, it is empty$"),
        ((HEADER,), r": no request in it$"),
        ((HEADER, "nothing"), r": no request in it, 1 unusable lines were skipped$"),
        (("time,tokens", "1,2"), r":1: neither the header TIMESTAMP,ContextTokens,GeneratedTokens nor a JSON object"),
        (("", AZURE_LINES[0]), r":2: neither the header"),
    ],
)
def test_a_file_without_requests_is_refused_even_with_lines_skipped(
    tmp_path: Path, lines: tuple[str, ...], refusal: str
) -> None:
    with pytest.raises(InputError, match=r"some\.trace" + refusal):
        read_trace(written(tmp_path, *lines), skip_bad_lines=True)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: No such file or directory, give a readable trace$"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(InputError, match=r": Is a directory, give a readable trace$"):
        read_trace(tmp_path)


@pytest.mark.parametrize(
    ("name", "totals"),
    [
        ("AzureLLMInferenceTrace_code.csv", (8_819, 18_059_974, 245_896, 3_435_948_056_000)),
        ("AzureLLMInferenceTrace_conv.csv", (19_366, 22_361_870, 4_088_665, 3_501_721_937_000)),
        ("mooncake_conversation_trace.jsonl", (12_031, 144_793_823, 4_122_048, 3_536_999_000_000)),
    ],
)
def test_the_public_traces_are_read_in_full(public_data: Path, name: str, totals: tuple[int, int, int, int]) -> None:
    trace = read_trace(public_data / "prefill_traces" / name, spread_ticks=False)
    assert trace.skipped == 0
    assert totals == (
        len(trace.requests),
        sum(request.prompt_tokens for request in trace.requests),
        sum(request.output_tokens for request in trace.requests),
        trace.span_ns,
    )


def test_mooncakes_ticks_are_seen_and_spread(public_data: Path) -> None:
    path = public_data / "prefill_traces" / "mooncake_conversation_trace.jsonl"
    burst, spread = arrivals_ns(read_trace(path, spread_ticks=False)), arrivals_ns(read_trace(path))
    assert len(set(burst)) == 1_180
    assert len(set(spread)) == 12_031
    assert all(0 <= late - early < 2_997_000_000 for early, late in zip(burst, spread, strict=True))


def test_more_requests_than_are_converted_at_once_keep_their_numbers(tmp_path: Path) -> None:
    lines = [mooncake_line(5000 * number, number + 1) for number in range(4100)]
    trace = read_trace(written(tmp_path, *lines))
    assert [request.number for request in trace.requests] == list(range(4100))
    assert [request.prompt_tokens for request in trace.requests] == list(range(1, 4101))
    assert arrivals_ns(trace)[-1] == 4099 * 5 * 10**9


def test_ticks_far_apart_are_spread_over_three_seconds_at_most() -> None:
    assert spread_evenly(np.array([0, 0, 10**10])).tolist() == [0, 15 * 10**8, 10**10]


def test_named_columns_of_json_lines_have_no_ticks_to_spread(tmp_path: Path) -> None:
    columns = TraceColumns("t", "i", "o", ArrivalUnit.SECONDS)
    path = written(tmp_path, *(f'{{"t": {at}, "i": 1, "o": 1}}' for at in (0, 0, 3)))
    assert arrivals_ns(read_trace(path, columns=columns)) == [0, 0, 3 * 10**9]


def test_a_mark_in_the_middle_of_a_file_is_not_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, AZURE_LINES[0], "\ufeff" + AZURE_LINES[1])
    assert read_trace(path, skip_bad_lines=True).skipped == 1


@pytest.mark.parametrize("first", ["[", " [ {", "[[1, 2]]", "[]"])
def test_a_json_array_is_told_what_it_should_be(tmp_path: Path, first: str) -> None:
    wanted = "neither the header" if first == "[]" else "a JSON array: write each request as one JSON object"
    with pytest.raises(InputError, match=rf"some\.trace:1: {wanted}"):
        read_trace(written(tmp_path, first, "]"))
