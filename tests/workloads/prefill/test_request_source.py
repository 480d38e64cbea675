from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.prefill.request import Request
from workloads.prefill.request_source import RequestSource, SourceKind, TokenCount, striped

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
