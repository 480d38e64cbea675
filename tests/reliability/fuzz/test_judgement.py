"""A clear line and a right result are no faults, everything else is."""

from pathlib import Path

import pytest

from tests.reliability.fuzz.judgement import LONGEST_LINE, Ended, faults_of
from tests.reliability.fuzz.kind import INPUT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / INPUT).mkdir()
    (tmp_path / INPUT / "link.csv").touch()
    return tmp_path / INPUT


@pytest.mark.parametrize(
    "ended",
    [
        Ended(0, "a table\n"),
        Ended(1, "a table\n", "wanbed: 1 of 2 links outside tolerance\n"),
        Ended(2, errors="wanbed: link.csv:3: rate: give less\n"),
        Ended(2, errors="Usage: wanbed run FILE\nError: no such option\n"),
        Ended(4, errors="wanbed: the log is cut off\n"),
    ],
)
def test_a_result_and_a_clear_line_are_right(folder: Path, ended: Ended) -> None:
    assert faults_of(ended, folder, names_its_file=True) == []


@pytest.mark.parametrize(
    ("ended", "fault"),
    [
        (Ended(0, fault=RecursionError("too deep")), "RecursionError left the command: too deep"),
        (Ended(4, errors="Traceback (most recent call last):\nwanbed: this is a fault of wanbed itself\n"), "status 4"),
        (Ended(5, errors="wanbed: link.csv: memory ran out\n"), "status 5"),
        (Ended(2), "no line says why"),
        (Ended(2, errors="wanbed: give less\n"), "no line names a file"),
        (Ended(2, errors=f"wanbed: link.csv: {'x' * LONGEST_LINE}\n"), "a line of 1018 characters"),
        (Ended(0, "\x1b[31mred"), "standard output has U+001B raw"),
        (Ended(0, errors="wanbed: \u202egnp\n"), "standard error has U+202E raw"),
    ],
)
def test_everything_else_is_a_fault(folder: Path, ended: Ended, fault: str) -> None:
    assert faults_of(ended, folder, names_its_file=True) == [fault]


@pytest.mark.parametrize("name", ["page.html", "table.csv", "compared.md"])
def test_a_raw_character_in_what_was_written_is_a_fault_and_in_the_input_is_none(folder: Path, name: str) -> None:
    (folder / "link.csv").write_text("\x1b", encoding="utf-8")
    (folder.parent / name).write_text("\u202e", encoding="utf-8")
    assert faults_of(Ended(0), folder, names_its_file=True) == [f"{name} has U+202E raw"]
