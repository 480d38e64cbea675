"""Columns that are numbered by a table give what sorting them gives."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.metrics.numbering import MOST_KEYS, is_among, numbered, text_codes

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
