import errno
import os
from pathlib import Path

import pytest

from wanbed.ground.files.atomic_write import PARTIAL, write_whole, written_together, written_whole
from wanbed.ground.files.regular_file import NotRegularFileError


def test_a_file_is_replaced_when_the_block_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with written_whole(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "half" * 10000 + "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_writes_nothing_is_an_error_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), written_whole(path):
        pass
    assert path.read_text() == "old"


def test_what_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.with_name(path.name + PARTIAL).write_text("left over, and longer")
    write_whole(path, "é")
    assert path.read_bytes() == "é".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_without_a_name_gets_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(OSError, match="No space left on device") as full, written_whole(path):
        raise OSError(errno.ENOSPC, "written by a library in other words")
    assert full.value.filename == str(path)
    assert full.value.strerror == "No space left on device"


def test_an_error_with_a_name_keeps_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing, written_whole(tmp_path / "a.json"):
        (tmp_path / "other").read_text()
    assert missing.value.filename == str(tmp_path / "other")


def test_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    """As root, writing to /dev/null would otherwise leave a file there."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(NotRegularFileError):
        write_whole(path, "text")
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_left_open_goes_on_under_its_name(tmp_path: Path) -> None:
    with written_whole(tmp_path / "log") as partial:
        file = partial.open("w")
    with file:
        file.write("later")
    assert (tmp_path / "log").read_text() == "later"


def test_files_that_are_written_together_replace_others_when_the_block_has_ended(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("old")
    with written_together(tmp_path) as draft:
        (draft / "a.csv").write_text("new")
        (draft / "b.csv").write_text("new")
        assert (tmp_path / "a.csv").read_text() == "old"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.csv": "new", "b.csv": "new"}


def test_of_files_written_together_a_killed_process_leaves_only_what_the_next_one_removes(tmp_path: Path) -> None:
    (tmp_path / PARTIAL).mkdir()
    (tmp_path / PARTIAL / "left.csv").write_text("by a process that was killed")
    with pytest.raises(FileNotFoundError), written_together(tmp_path) as draft:
        (draft / "a.csv").rename(draft / "b.csv")
    assert list(tmp_path.iterdir()) == []
