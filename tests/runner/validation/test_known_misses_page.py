"""The page of known misses has every kind, with what the code says of it."""

from pathlib import Path

import pytest

from wanbed.runner.resolve.known_misses import MISS_CLASSES
from wanbed.runner.validation.known_misses_page import BEGIN, END, kinds, main, with_kinds

PAGE = Path(__file__).resolve().parents[3] / "docs" / "known-misses.md"


def test_the_page_is_up_to_date() -> None:
    assert main([str(PAGE)]) == 0


def test_every_kind_is_there_with_its_range_and_reason() -> None:
    for each in MISS_CLASSES:
        assert each.why in kinds()
        (row,) = (line for line in kinds().splitlines() if line.startswith(f"| `{each.miss.name}`"))
        assert each.miss.range_text in row
        assert each.miss.what in row


def test_a_page_that_is_behind_is_noticed_and_brought_up_to_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}{END}after\n")
    assert main([str(page)]) == 1
    assert "bring it up to date with --write" in capsys.readouterr().err
    assert main([str(page), "--write"]) == main([str(page)]) == 0
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("after\n")


def test_a_page_without_a_place_for_the_kinds_is_refused() -> None:
    with pytest.raises(ValueError, match="the page lacks"):
        with_kinds("nothing")
