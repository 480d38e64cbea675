"""Groups in one memory: two neighbours never touch, and it is hardly larger than the largest two."""

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.compute.grouped_model import lay_out

SIZES = st.lists(st.integers(1, 5000), min_size=1, max_size=12)


def cuts_of(sizes: list[int]) -> list[tuple[int, int]]:
    return list(pairwise([0, *accumulate(sizes)]))


@given(SIZES)
def test_neighbours_do_not_overlap(sizes: list[int]) -> None:
    layout = lay_out(cuts_of(sizes))
    places = [range(start, start + size) for start, size in zip(layout.starts, sizes, strict=True)]
    assert all(place.start >= 0 and place.stop <= layout.elements for place in places)
    for one, other in pairwise(places):
        assert one.stop <= other.start or other.stop <= one.start


@given(SIZES)
def test_the_memory_is_that_of_two_neighbours(sizes: list[int]) -> None:
    largest = max([*sizes, *(one + other for one, other in pairwise(sizes))])
    assert lay_out(cuts_of(sizes)).elements <= largest + 2 * 128


@given(SIZES)
def test_a_group_is_aligned_as_in_the_whole_model(sizes: list[int]) -> None:
    cuts = cuts_of(sizes)
    for (first, _), start in zip(cuts, lay_out(cuts).starts, strict=True):
        assert (start - first) % 128 == 0
