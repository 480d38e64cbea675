"""Files are regular, and written whole or not at all; a program writes its part of a page alone."""

import errno
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wanbed.ground.files import (
    PARTIAL,
    NotRegularFileError,
    read_bounded,
    regular_file,
    with_marked_text,
    write_whole,
    written_together,
    written_whole,
)


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


def test_of_several_who_write_one_file_at_once_each_writes_it_whole(tmp_path: Path) -> None:
    path, texts = tmp_path / "a.json", [str(number) * 100_000 for number in range(4)]

    def write(text: str) -> set[str]:
        seen = set()
        for _ in range(20):
            write_whole(path, text)
            seen.add(path.read_text())
        return seen

    with ThreadPoolExecutor() as pool:
        seen = set().union(*pool.map(write, texts))
    assert seen <= set(texts)
    assert list(tmp_path.iterdir()) == [path]


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


BEGIN, END = "<!-- begin -->\n", "<!-- end -->\n"


def test_what_lies_between_the_marks_is_replaced_and_the_rest_stays() -> None:
    page = f"before\n{BEGIN}old\n{END}after\n{END}"
    written = with_marked_text(page, BEGIN, END, "\nnew\n")
    assert written == f"before\n{BEGIN}\nnew\n\n{END}after\n{END}"
    assert with_marked_text(written, BEGIN, END, "new") == written


@pytest.mark.parametrize("page", ["", BEGIN, END, END + BEGIN])
def test_a_page_without_both_marks_in_their_order_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="the page lacks"):
        with_marked_text(page, BEGIN, END, "new")


def test_a_file_is_returned_also_behind_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.touch()
    link.symlink_to(file)
    assert regular_file(file) == file
    assert regular_file(link) == link


def test_a_path_that_names_nothing_is_left_to_the_opening(tmp_path: Path) -> None:
    assert regular_file(tmp_path / "none") == tmp_path / "none"
    assert regular_file(Path("nul\0byte")) == Path("nul\0byte")
    assert regular_file(tmp_path) == tmp_path


def test_a_pipe_is_refused_with_the_remedy_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(NotRegularFileError) as refused:
        regular_file(pipe)
    assert refused.value.strerror == "it is a pipe, not a regular file: save what it gives as a file first"
    assert refused.value.filename == str(pipe)


def test_a_pipe_behind_a_link_is_refused_too(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(NotRegularFileError, match="a pipe"):
        regular_file(tmp_path / "link")


def test_devices_and_sockets_are_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(NotRegularFileError, match="a socket"):
            regular_file(tmp_path / "socket")
    with pytest.raises(NotRegularFileError, match="a device"):
        regular_file(Path("/dev/zero"))


def test_of_a_file_that_is_longer_than_asked_for_one_byte_more_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert [read_bounded(tmp_path / "file", most_bytes) for most_bytes in (3, 4, 5, 6)] == [b"1234", *[b"12345"] * 3]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none", "No such file or directory"),
        (".", "Is a directory"),
        ("nul\0byte", "embedded null byte"),
        ("pipe", "it is a pipe, not a regular file: save what it gives as a file first"),
    ],
)
def test_of_a_file_that_cannot_be_read_the_reason_is_told(tmp_path: Path, name: str, reason: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=reason) as refused:
        read_bounded(tmp_path / name, 4)
    assert (refused.value.strerror, refused.value.filename) == (reason, str(tmp_path / name))
