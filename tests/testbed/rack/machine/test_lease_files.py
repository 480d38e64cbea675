import time
from pathlib import Path

import pytest

from wanbed.ground.errors import InputError
from wanbed.testbed.rack.machine.lease_files import LeaseFiles, WrittenFiles
from wanbed.testbed.rack.machine_handle import FilePiece


@pytest.fixture
def files(tmp_path: Path) -> LeaseFiles:
    folder = tmp_path / "lease"
    folder.mkdir()
    return LeaseFiles(folder)


MOST = 1000


def content(found: dict[str, FilePiece]) -> dict[str, bytes]:
    return {name: piece.content for name, piece in found.items()}


def test_what_was_written_is_read_once_and_removed(files: LeaseFiles) -> None:
    files.write({"trial/rank-3.json": b"{}", "trial/rank-3.spans": b"spans", "trial/rank-31.spans": b"other"})
    assert files.path("trial/rank-3.json").stat().st_mode & 0o777 == 0o600
    found = files.read(["trial/rank-3.*"], {}, MOST)
    assert content(found) == {"trial/rank-3.json": b"{}", "trial/rank-3.spans": b"spans"}
    assert all(0 < time.monotonic_ns() - piece.modified_ns < 60e9 for piece in found.values())
    files.remove(["trial/rank-3.*"])
    assert content(files.read(["trial/*"], {}, MOST)) == {"trial/rank-31.spans": b"other"}


def test_only_what_is_new_is_read_and_not_more_than_is_wanted(files: LeaseFiles) -> None:
    files.write({"one": b"012345", "two": b"abc", "empty": b""})
    assert content(files.read(["one", "two"], {"one": 4}, MOST)) == {"one": b"45", "two": b"abc"}
    assert content(files.read(["one", "two"], {"one": 6, "two": 3}, MOST)) == {}
    assert content(files.read(["*"], {"one": 1}, 3)) == {"empty": b"", "one": b"123", "two": b""}


@pytest.mark.parametrize("path", ["../other", "/etc/passwd", "trial/../../other"])
def test_a_path_out_of_the_lease_is_refused(files: LeaseFiles, path: str) -> None:
    with pytest.raises(InputError, match=r"leads out of the lease's folder, give a path below it$"):
        files.write({path: b""})
    with pytest.raises(InputError, match=r"leads out"):
        files.read([path], {}, MOST)


def test_a_link_that_a_program_has_made_leads_nowhere_else(files: LeaseFiles, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    files.path("out").symlink_to(tmp_path / "outside")
    with pytest.raises(InputError, match=r"leads out"):
        files.write({"out/file": b""})
    (files.path("x").parent / "passwords").symlink_to("/etc/passwd")
    assert files.read(["pass*"], {}, MOST) == {}
    files.remove(["pass*"])
    assert (files.path("x").parent / "passwords").is_symlink()


@pytest.fixture(name="folder")
def sent_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "sent"
    (folder / "0").mkdir(parents=True)
    (folder / "0" / "train.py").write_text("train")
    return folder


def test_what_was_there_is_not_what_a_program_has_written(folder: Path) -> None:
    written = WrittenFiles(folder)
    assert written.changed() == {}
    (folder / "0" / "model").mkdir()
    (folder / "0" / "model" / "weights.bin").write_bytes(bytes(10))
    (folder / "0" / "train.py").write_text("changed")
    assert written.changed() == {"0/model/weights.bin": 10, "0/train.py": 7}
    assert written.changed() == {}


def test_links_caches_and_virtual_environments_are_no_work_of_a_program(folder: Path, tmp_path: Path) -> None:
    written = WrittenFiles(folder)
    (tmp_path / "beside.txt").write_text("beside")
    (folder / "0" / "link").symlink_to(tmp_path / "beside.txt")
    (folder / "0" / "out").symlink_to(tmp_path)
    for name in ("__pycache__/train.pyc", "venv/pyvenv.cfg", "venv/lib/package.py"):
        (folder / "0" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "0" / name).write_text("made")
    assert written.changed() == {}


def test_a_file_is_read_in_parts_and_nothing_outside_is(folder: Path, tmp_path: Path) -> None:
    written = WrittenFiles(folder)
    assert written.read("0/train.py", 2, 2) == b"ai"
    assert written.read("0/train.py", 5, 2) == b""
    assert written.read("0/gone.py", 0, 2) == b""
    (tmp_path / "beside.txt").write_text("beside")
    (folder / "link").symlink_to(tmp_path)
    for name in ("../beside.txt", "link/beside.txt", str(tmp_path / "beside.txt")):
        with pytest.raises(InputError, match="leads out"):
            written.read(name, 0, 2)
