"""What a program prints is saved up to a limit, and its end is remembered."""

from pathlib import Path

import pytest

from wanbed.workloads.programs.bounded_output import BoundedOutput, OutputLimitError


def test_all_up_to_the_limit_is_saved_and_no_byte_more(tmp_path: Path) -> None:
    output = BoundedOutput("standard output", tmp_path / "out", 2**10)
    output.add(b"x" * 1000 + b"\n")
    output.add(b"y" * 23)
    assert (tmp_path / "out").stat().st_size == 2**10
    with pytest.raises(OutputLimitError, match=r"^printed more than 1KiB to standard output: yyy+z$"):
        output.add(b"z")
    assert (tmp_path / "out").read_bytes() == b"x" * 1000 + b"\n" + b"y" * 23


def test_the_line_of_its_end_is_remembered_however_much_was_printed(tmp_path: Path) -> None:
    output = BoundedOutput("standard error", tmp_path / "err", 2**30)
    for _ in range(100):
        output.add(b"line\n" * 1000)
    output.add(b"the la")
    output.add(b"st\n")
    assert output.telling_line() == "the last"


def test_a_file_of_an_earlier_program_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("old")
    BoundedOutput("standard output", tmp_path / "out", 1)
    assert (tmp_path / "out").read_bytes() == b""


def test_a_full_disk_names_the_file() -> None:
    output = BoundedOutput("standard output", Path("/dev/full"), 2**10)
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        output.add(b"text\n")
    assert output.telling_line() == "text"
