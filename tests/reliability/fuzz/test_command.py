from pathlib import Path

import pytest

from tests.reliability.fuzz.__main__ import main
from tests.reliability.fuzz.page import BEGIN, END

KIND = "frames of ranks"


def test_each_kind_has_a_row_and_status_0_says_that_nothing_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--count", "5", KIND]) == 0
    assert capsys.readouterr().out.startswith(f"{KIND}                      5 inputs ")


def test_one_number_is_repeated_with_what_it_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--number", "3", KIND]) == 0
    assert capsys.readouterr().out.startswith("refused, status 2\n")


def test_the_row_of_a_kind_is_written_and_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n{BEGIN}{END}\nthe end\n", encoding="utf-8")
    for kind in ("span logs", KIND):
        assert main(["--count", "2", "--write", str(page), kind]) == 0
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line.split(" | ")[:2] for line in lines if line.startswith(("| span", "| frames"))] == [
        ["| span logs", "2"],
        [f"| {KIND}", "2"],
    ]
    assert lines[-1] == "the end"


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SystemExit, match="no kind 'frame': there are experiment files, WAN traces"):
        main(["frame"])
