"""A table is declared by its columns, and shows what its rows have."""

import pytest

from tests.support.results.table_texts import texts_of
from wanbed.results.report.table import Column, Table, TableCell

COLUMNS = (
    Column[tuple[str, str]]("sweep point", lambda row: row[0]),
    Column[tuple[str, str]]("name", lambda row: row[1]),
)


def table(*rows: tuple[str, str]) -> Table | None:
    return Table.of("names", "Names", rows, COLUMNS, "How to read it.", record=dict_of)


def dict_of(row: tuple[str, str]) -> dict[str, str]:
    return {"where": row[0], "name": row[1]}


def test_each_row_has_a_text_in_each_column() -> None:
    found = table(("10 ms", "one"), ("", "other"))
    assert found is not None
    assert (list(found.columns), texts_of(found)) == (["sweep point", "name"], [("10 ms", "one"), ("", "other")])


def test_a_column_in_which_no_row_has_a_text_is_left_out() -> None:
    found = table(("", "one"), ("", "other"))
    assert found is not None
    assert (list(found.columns), texts_of(found)) == (["name"], [("one",), ("other",)])


def test_without_rows_there_is_no_table() -> None:
    assert table() is None


def test_markdown_has_the_same_texts_and_no_name_is_taken_for_markup() -> None:
    found = table(("10 ms", "a|b_c"))
    assert found is not None
    lines = ["| sweep point | name |", "| ---: | --- |", "| 10 ms | a&#124;b\\_c |", "", "How to read it.", ""]
    assert found.markdown().split("\n") == ["", "**Names**", "", *lines]
    assert found.markdown("my_run").split("\n")[1] == "**Names, my\\_run**"


def test_records_have_the_values_of_columns_that_are_left_out_too() -> None:
    found = table(("", "one"))
    assert found is not None
    assert found.records == [{"where": "", "name": "one"}]


@pytest.mark.parametrize(
    ("texts", "figures"),
    [
        (["1.20 s", "unknown", ""], True),
        (["+0.5 %", "-321 ms"], True),
        (["1.17x (1.10x to 1.20x)", "0.9x"], True),
        (["0", "12"], True),
        (["1f1b"], False),
        (["12 ms", "atlas"], False),
    ],
)
def test_a_column_of_numbers_stands_to_the_right_and_a_name_may_begin_with_one(texts: list[str], figures: bool) -> None:
    column = Column[str]("what", lambda text: text)
    found = Table.of("names", "Names", texts, [column], "How to read it.")
    assert found is not None
    assert list(found.figures) == [figures]


def test_rows_of_one_sweep_point_stand_beneath_it() -> None:
    found = table(("10 ms", "one"), ("20 ms", "one"), ("10 ms", "other"))
    assert found is not None
    groups = [(where, [cell.text for row in rows for cell in row]) for where, rows in found.groups]
    assert groups == [("10 ms", ["one", "other"]), ("20 ms", ["one"])]


def test_without_sweep_points_all_rows_stand_together() -> None:
    found = table(("", "one"), ("", "other"))
    assert found is not None
    assert [(where, len(rows)) for where, rows in found.groups] == [("", 2)]


def test_markdown_has_what_stands_beneath_a_text_behind_it() -> None:
    column = Column[str]("RTT measured", lambda text: TableCell("41 ms", (text, "a*b"), bad=True), "configured")
    found = Table.of("links", "Links", ["40 ms"], [column], ["One.", "Two."], note="A note.")
    assert found is not None
    assert found.markdown().split("\n")[3:] == [
        *("| RTT measured (configured) |", "| ---: |", "| **41 ms** (40 ms, a\\*b) |"),
        *("", "One.", "", "Two.", "", "A note.", ""),
    ]


def test_rows_without_a_sweep_point_have_a_heading_of_their_own_beside_others() -> None:
    found = table(("10 ms", "one"), ("", "other"))
    assert found is not None
    assert [where for where, _ in found.groups] == ["10 ms", "no sweep"]
