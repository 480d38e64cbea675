"""Which rank of a collective began last."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.metrics.collectives import UNMATCHED, group_size, last_to_begin


def last(*spans: tuple[int, int], size: int = 0, **more: Any) -> list[int]:
    """Of spans given as (rank, start), all of one kind, group and iteration unless ``more`` says otherwise."""
    rank, start_ns = (np.array(column, np.int64) for column in zip(*spans, strict=True))
    same = np.zeros(len(spans), np.int64)
    columns = {"kind": same, "group": same, "iteration": same, "size": same + size, **more}
    return last_to_begin(rank=rank, start_ns=start_ns, **columns).tolist()


def test_the_latest_start_is_the_last_to_begin() -> None:
    assert last((0, 5), (1, 9), (2, 7)) == [1, 1, 1]


def test_the_nth_span_of_every_rank_is_one_collective() -> None:
    assert last((0, 0), (0, 10), (1, 1), (1, 9)) == [2, 1, 2, 1]


def test_order_of_the_spans_does_not_matter() -> None:
    assert last((1, 9), (0, 10), (1, 1), (0, 0)) == [1, 1, 2, 2]


def test_kinds_groups_and_iterations_are_apart() -> None:
    for name in ("kind", "group", "iteration"):
        assert last((0, 0), (1, 1), (0, 2), (1, 3), **{name: np.array([0, 0, 1, 1])}) == [1, 1, 3, 3]


def test_different_numbers_on_two_ranks_match_nothing() -> None:
    assert last((0, 0), (0, 1), (1, 0)) == [UNMATCHED] * 3


def test_a_group_of_which_a_rank_is_missing_matches_nothing() -> None:
    assert last((0, 0), (1, 1), size=3) == [UNMATCHED] * 2
    assert last((0, 0), (1, 1), size=2) == [1, 1]


def test_no_spans_have_no_last() -> None:
    none = np.zeros(0, np.int64)
    assert last_to_begin(rank=none, kind=none, group=none, size=none, iteration=none, start_ns=none).tolist() == []


def test_the_size_of_a_group_is_the_number_of_its_ranks() -> None:
    assert [group_size(group) for group in ("", "3", "0,1,12")] == [0, 1, 3]


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=1, max_size=4), min_size=1, max_size=20))
def test_nobody_begins_after_the_last(starts: list[list[int]]) -> None:
    """``starts`` has the start of each rank in each collective, of which all ranks take part in the same number."""
    ranks = min(map(len, starts))
    of_rank = [sorted(each[rank] for each in starts) for rank in range(ranks)]
    spans = [(rank, start) for rank, own in enumerate(of_rank) for start in own]
    found = last(*spans)
    for (_, start), of in zip(spans, found, strict=True):
        assert spans[of][1] >= start
    assert sorted({spans[of][1] for of in found}) == sorted({max(own) for own in zip(*of_rank, strict=True)})
