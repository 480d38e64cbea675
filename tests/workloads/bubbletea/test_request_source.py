from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.errors import InputError
from wanbed.workloads.bubbletea.request import Request
from wanbed.workloads.bubbletea.request_source import RequestSource, SourceKind, TokenCount, striped
from wanbed.workloads.bubbletea.trace_formats import ArrivalUnit, TraceColumns

SOURCE = RequestSource("gamma", SourceKind.GAMMA, 10.0, seed=3, variation=2.0, prompt=TokenCount(1000, 2.0))


def requests(count: int) -> Iterator[Request]:
    return (Request(number, number, 1, 1) for number in range(count))


def test_a_source_gives_the_same_requests_every_time() -> None:
    assert list(islice(SOURCE.requests(), 100)) == list(islice(SOURCE.requests(), 100))


def test_a_spread_of_lengths_is_drawn_and_none_is_one_length() -> None:
    drawn = list(islice(SOURCE.requests(), 100))
    assert len({request.prompt_tokens for request in drawn}) > 50
    assert {request.output_tokens for request in drawn} == {128}


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any), st.integers(0, 200))
def test_everybody_has_a_share_in_proportion_to_the_weight(weights: list[int], count: int) -> None:
    taken = [taker for taker, _ in striped(requests(count), weights)]
    for taker, weight in enumerate(weights):
        assert abs(taken.count(taker) - count * weight / sum(weights)) <= len(weights)
        assert weight or taker not in taken


def test_requests_are_distributed_in_order_each_once() -> None:
    assert [request.number for _, request in striped(requests(50), [1, 2])] == list(range(50))


def test_requests_need_a_weight_above_zero() -> None:
    with pytest.raises(ValueError, match="weights: none is above 0"):
        next(striped(requests(1), [0, 0]))


def test_each_request_goes_to_whom_it_brings_the_least_per_weight_the_first_of_equals() -> None:
    # After each: 1/2; 2/2 against 1/1 and 1/1; then 3/2 against 1 and 1; then 3/2 against 2 and 1.
    assert [receiver for receiver, _ in striped(requests(8), [2, 1, 1])] == [0, 0, 1, 2, 0, 0, 1, 2]
    assert [receiver for receiver, _ in striped(requests(5), [1, 0, 3])] == [2, 2, 0, 2, 2]


def test_lengths_that_nobody_gives_are_1024_and_128_tokens() -> None:
    (first,) = islice(RequestSource("poisson", SourceKind.POISSON, 4.0, seed=1).requests(), 1)
    assert (first.number, first.prompt_tokens, first.output_tokens) == (0, 1024, 128)
    assert first.arrival_ns > 0


def test_the_kind_decides_how_gaps_are_drawn_and_the_seed_which() -> None:
    def arrivals_ns(source: RequestSource) -> list[int]:
        return [request.arrival_ns for request in islice(source.requests(), 400)]

    steady = arrivals_ns(replace(SOURCE, variation=0.01))
    gaps = [later - earlier for earlier, later in pairwise(steady)]
    assert max(gaps) < 1.1 * min(gaps), "10 a second, all within 5 standard deviations of 1 %"
    assert arrivals_ns(replace(SOURCE, kind=SourceKind.POISSON)) != arrivals_ns(SOURCE)
    assert arrivals_ns(replace(SOURCE, seed=4)) != arrivals_ns(SOURCE)


def test_a_stretch_multiplies_arrivals_and_nothing_else() -> None:
    for own, slow in zip(
        islice(SOURCE.requests(), 20), islice(replace(SOURCE, stretch=2.5).requests(), 20), strict=True
    ):
        assert slow == replace(own, arrival_ns=round(2.5 * own.arrival_ns))


def test_a_file_has_its_own_lengths_and_pace_unless_it_is_stretched_to_a_rate(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("at,in,out\n5,10,1\nbad\n7,20,2\n6,30,3\n")
    columns = TraceColumns("at", "in", "out", ArrivalUnit.SECONDS)
    file = RequestSource("log", SourceKind.FILE, 4.0, seed=1, path=str(path), columns=columns, skipped_lines=1)
    read = [(request.arrival_ns, request.prompt_tokens, request.output_tokens) for request in file.requests()]
    assert read == [(0, 10, 1), (10**9, 30, 3), (2 * 10**9, 20, 2)]
    fast = replace(file, stretched=True)
    assert [request.arrival_ns for request in fast.requests()] == [0, 250_000_000, 500_000_000]
    with pytest.raises(InputError, match=r"log\.csv:3: "):
        list(replace(file, skipped_lines=0).requests())
