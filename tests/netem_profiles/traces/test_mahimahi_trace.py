"""A Mahimahi trace is the mean rate of each window of its lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.strict_model import InputError
from wanbed.netem_profiles.traces.mahimahi_trace import PACKET_BITS, mahimahi_trace

MS = 10**6
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
    with pytest.raises(InputError) as caught:
        mahimahi_trace(text, "f", "f", WINDOW_NS)
    assert str(caught.value).startswith(line)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=200).map(sorted).filter(lambda times: times[-1] > 0))
def test_the_rates_carry_every_packet_of_the_trace(times_ms: list[int]) -> None:
    found = rates(times_ms)
    ends = [at_ms for at_ms, _ in found[1:]] + [times_ms[-1]]
    bits = sum(rate * (end - begin) / 1e3 for (begin, rate), end in zip(found, ends, strict=True))
    assert bits == pytest.approx(len(times_ms) * PACKET_BITS, rel=1e-3, abs=10)
    assert all(rate > 0 for _, rate in found)
