import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.strict_model import InputError
from wanbed.workloads.prefill.request import Request
from wanbed.workloads.prefill.sources.trace import RequestTrace, scaled


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
