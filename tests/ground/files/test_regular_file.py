"""Test that only regular files are opened."""

import os
import socket
from pathlib import Path

import pytest

from wanbed.ground.files.regular_file import NotRegularFileError, regular_file


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
