import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.perfetto.lanes import assign_lanes

SPANS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 12)), max_size=40)


def lanes_of(spans: list[tuple[int, int, int]]) -> list[int]:
    place, start, length = (np.array([span[field] for span in spans], np.int64) for field in range(3))
    return [int(lane) for lane in assign_lanes(place, start, start + length)]


def moments(start: int, length: int) -> set[int]:
    return set(range(start, start + max(length, 1)))


@given(SPANS)
def test_no_two_spans_of_a_lane_have_a_moment_in_common(spans: list[tuple[int, int, int]]) -> None:
    taken: dict[tuple[int, int], set[int]] = {}
    for (place, start, length), lane in zip(spans, lanes_of(spans), strict=True):
        own = taken.setdefault((place, lane), set())
        assert not own & moments(start, length)
        own |= moments(start, length)


@given(SPANS)
def test_a_place_has_as_many_lanes_as_spans_at_the_same_time_and_no_more(spans: list[tuple[int, int, int]]) -> None:
    lanes = lanes_of(spans)
    for place in {span[0] for span in spans}:
        own = [moments(start, length) for where, start, length in spans if where == place]
        most = max(sum(moment in each for each in own) for moment in set().union(*own))
        assert {lane for lane, span in zip(lanes, spans, strict=True) if span[0] == place} == set(range(most))


def test_what_does_not_overlap_stays_on_the_first_lane_in_whatever_order_it_is_given() -> None:
    assert lanes_of([(0, 20, 10), (0, 0, 10), (0, 10, 10), (1, 5, 10)]) == [0, 0, 0, 0]


def test_a_lane_that_is_free_again_is_taken_again() -> None:
    assert lanes_of([(0, 0, 10), (0, 5, 10), (0, 10, 10), (0, 12, 1), (0, 15, 5)]) == [0, 1, 0, 2, 1]


def test_spans_without_length_at_one_moment_stand_on_lanes_of_their_own() -> None:
    assert lanes_of([(0, 5, 0), (0, 5, 0), (0, 5, 3), (0, 0, 5)]) == [0, 1, 2, 0]
