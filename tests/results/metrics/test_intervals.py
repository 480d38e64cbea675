"""Columns that are numbered by a table give what sorting them gives."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.metrics.intervals import MOST_KEYS, CoveredTime, GroupedIntervals, is_among, numbered, text_codes

TIMES = st.integers(0, 60)

STRETCHES = st.tuples(TIMES, TIMES).map(lambda pair: (min(pair), max(pair)))

OWNED = st.lists(st.tuples(st.integers(0, 3), STRETCHES), max_size=12)


def grouped(of: list[tuple[int, tuple[int, int]]]) -> GroupedIntervals:
    rows = np.array([(group, *stretch) for group, stretch in of], np.int64).reshape(-1, 3)
    return GroupedIntervals.of(*rows.T)


def instants(of: list[tuple[int, tuple[int, int]]], group: int) -> set[int]:
    return {instant for owner, stretch in of if owner == group for instant in range(*stretch)}


@given(OWNED)
def test_intervals_stand_by_group_then_by_start_and_equal_ones_as_given(of: list[tuple[int, tuple[int, int]]]) -> None:
    by_group_and_start = sorted(range(len(of)), key=lambda position: (of[position][0], of[position][1][0]))
    assert grouped(of).order.tolist() == by_group_and_start


def test_times_that_fit_no_64_bits_together_with_their_group_are_sorted_too() -> None:
    starts, ends = np.array([2**62, 5, 0, 1], np.int64), np.array([2**62 + 1, 6, 9, 2], np.int64)
    found = GroupedIntervals.of(np.array([1, 0, 1, 1], np.int64), starts, ends)
    assert (found.order.tolist(), found.before.tolist()) == ([1, 2, 3, 0], [5, 0, 9, 9])


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


TEXTS = st.lists(st.sampled_from(["b", "a", "é", "", "aa"]))


@given(st.lists(st.integers(-3, 3) | st.integers(0, 2 * MOST_KEYS)))
def test_values_are_numbered_as_unique_does_it(values: list[int]) -> None:
    column = np.array(values, np.int64)
    found, positions = numbered(column)
    expected, expected_positions = np.unique(column, return_inverse=True)
    assert found.tolist() == expected.tolist()
    assert positions.tolist() == expected_positions.tolist()


@given(TEXTS, st.lists(st.sampled_from(["a", "b", "none"]), max_size=2))
def test_a_categorical_is_numbered_and_searched_as_the_texts_are(texts: list[str], names: list[str]) -> None:
    plain = pd.Series(texts, dtype="str")
    for column in (plain, plain.astype(pd.CategoricalDtype(["", "a", "aa", "b", "unused", "é"]))):
        codes, known = text_codes(column)
        assert [known[code] for code in codes] == texts
        assert known == sorted(known)
        assert is_among(column, names).tolist() == [text in names for text in texts]


@pytest.mark.parametrize("order", [["a", "b"], ["b", "a"]])
def test_the_names_are_sorted_whatever_the_order_of_the_categories(order: list[str]) -> None:
    codes, names = text_codes(pd.Series(["b", "a"], dtype=pd.CategoricalDtype(order)))
    assert (codes.tolist(), names) == ([1, 0], ["a", "b"])
