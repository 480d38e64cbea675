import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.metrics.intervals import CoveredTime, GroupedIntervals

TIMES = st.integers(0, 60)
STRETCHES = st.tuples(TIMES, TIMES).map(lambda pair: (min(pair), max(pair)))
OWNED = st.lists(st.tuples(st.integers(0, 3), STRETCHES), max_size=12)


def grouped(of: list[tuple[int, tuple[int, int]]]) -> GroupedIntervals:
    rows = np.array([(group, *stretch) for group, stretch in of], np.int64).reshape(-1, 3)
    return GroupedIntervals.of(*rows.T)


def instants(of: list[tuple[int, tuple[int, int]]], group: int) -> set[int]:
    return {instant for owner, stretch in of if owner == group for instant in range(*stretch)}


@given(OWNED)
def test_each_group_covers_the_instants_of_its_own_intervals(of: list[tuple[int, tuple[int, int]]]) -> None:
    assert grouped(of).covered(4).tolist() == [len(instants(of, group)) for group in range(4)]


@given(OWNED, OWNED)
def test_covered_time_of_a_stretch_counts_the_instants_within(
    of: list[tuple[int, tuple[int, int]]], asked: list[tuple[int, tuple[int, int]]]
) -> None:
    rows = np.array([(group, *stretch) for group, stretch in asked], np.int64).reshape(-1, 3)
    found = CoveredTime(grouped(of), 60).between(*rows.T)
    assert found.tolist() == [len(instants(of, group) & set(range(*stretch))) for group, stretch in asked]


def test_groups_beyond_16_bits_stay_apart() -> None:
    group = np.array([0, 65_535, 65_536, 131_072], np.int64)
    found = GroupedIntervals.of(group, np.array([0, 10, 5, 0]), np.array([4, 12, 6, 3]))
    assert found.covered(131_073)[group].tolist() == [4, 2, 1, 3]
    assert found.order.tolist() == [0, 1, 2, 3]
