"""Rows come back as they were added, whatever waits to be packed; what is beyond 64 bits is refused at once."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.flow.number_rows import NumberRows

LEAST, MOST = -(1 << 63), (1 << 63) - 1

NUMBERS = st.integers(LEAST, MOST)

ROWS = st.lists(st.one_of(st.lists(NUMBERS, min_size=length, max_size=length) for length in (3, 5, 8)))


def added(rows: NumberRows, row: list[int]) -> None:
    if len(row) == 3:
        rows.add_stretch(row[0], row[1], row[2])
    elif len(row) == 8:
        rows.add_span(*row[:4], start_ns=row[4], end_ns=row[5], size=row[6], peer=row[7])
    else:
        rows.extend(tuple(row))


@given(ROWS, st.integers(1, 40), st.sets(st.integers(0, 20)))
def test_rows_are_those_added_in_order(each: list[list[int]], batch: int, looked_at: set[int]) -> None:
    rows, expected = NumberRows(batch), list[int]()
    for number, row in enumerate(each):
        added(rows, row)
        expected += row
        assert len(rows) == len(expected)
        if number in looked_at:
            assert rows.numbers.tolist() == expected
    assert rows.numbers.tolist() == expected


@pytest.mark.parametrize(
    "add",
    [
        lambda rows: rows.add_stretch(0, MOST + 1, 0),
        lambda rows: rows.add_stretch(0, 0, MOST + 1),
        lambda rows: rows.add_span(0, 0, 0, 0, start_ns=0, end_ns=MOST + 1, size=0, peer=0),
        lambda rows: rows.add_span(0, 0, 0, 0, start_ns=0, end_ns=0, size=MOST + 1, peer=0),
        lambda rows: rows.extend((MOST + 1,)),
    ],
)
def test_numbers_beyond_64_bits_are_refused_when_they_are_added(add: Callable[[NumberRows], None]) -> None:
    rows = NumberRows(48)
    rows.add_stretch(1, 2, 3)
    with pytest.raises(OverflowError):
        add(rows)
    assert rows.numbers.tolist() == [1, 2, 3]
