from pathlib import Path

from tests.reliability.kills.__main__ import PAGE
from tests.reliability.kills.attempts import Verdict
from tests.reliability.kills.disturbances import drawn
from tests.reliability.kills.ledger import LEDGER, Entry, add_entry, numbers_to_try, read_entries
from tests.reliability.kills.page import BEGIN, END, tables, write_tables

FINE = Verdict(True, 137, 0, True, True, None, ())
LEFT = Verdict(False, 137, 2, None, False, False, ("left process 7 sleep", "left file /tmp/a\nb"))


def entry(number: int, verdict: Verdict, seed: int = 1) -> Entry:
    return Entry.of(seed, drawn(seed, number), verdict, "c0ffee")


def test_what_is_added_is_read_and_of_a_repeated_attempt_the_last_counts(tmp_path: Path) -> None:
    for each in (entry(4, LEFT), entry(3, FINE), entry(4, FINE)):
        add_entry(each, tmp_path / "ledger.csv")
    assert read_entries(tmp_path / "ledger.csv") == [entry(3, FINE), entry(4, FINE)]


def test_what_is_wrong_is_one_line() -> None:
    assert entry(4, LEFT).wrong == "left process 7 sleep; left file /tmp/a b"


def test_the_next_numbers_are_those_that_the_ledger_does_not_have_of_the_seed() -> None:
    entries = [entry(1, FINE), entry(0, FINE, seed=2)]
    assert numbers_to_try(entries, 1, 0, 3) == [0, 2, 3]
    assert numbers_to_try(entries, 1, 7, 2) == [7, 8]


def test_the_tables_count_what_was_asked_for() -> None:
    last = tables([entry(3, FINE), entry(4, LEFT)]).splitlines()[-1]
    assert last == "| all | 2 | 1 | 1 | 1 of 1 | 1 of 2 | 0 of 1 | 1 of 2 |"


def test_only_what_stands_between_the_marks_of_a_page_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    for _ in range(2):
        write_tables(page, [entry(3, FINE)])
    assert page.read_text() == f"before\n\n{BEGIN}\n\n{tables([entry(3, FINE)])}\n\n{END}\n\nafter\n"


def test_the_page_has_the_ledgers_tables() -> None:
    assert tables(read_entries(LEDGER)) in PAGE.read_text(encoding="utf-8")
