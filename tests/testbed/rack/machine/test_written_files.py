from pathlib import Path

import pytest

from wanbed.ground.strict_model import InputError
from wanbed.testbed.rack.machine.written_files import WrittenFiles


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
