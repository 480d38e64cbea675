import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.errors import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.rack_runs import sent_programs
from wanbed.runner.rack_runs.sent_programs import packed_programs, programs_of
from wanbed.runner.trainings.program.resolution import ResolvedProgram
from wanbed.testbed.rack.sent_files import SentFiles, unpack


def programs(folder: Path, *variants: Any) -> list[tuple[str, ResolvedProgram]]:
    return programs_of(
        parse_experiment(
            {
                "topology": {
                    "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
                    "wan": {"latency": "40ms", "rate": "1Gbit"},
                },
                "variants": [
                    {"name": f"number {number}", "program": program} for number, program in enumerate(variants)
                ],
                "sweep": {"topology.wan.latency": ["1ms", "2ms"]},
            },
            "exp.yaml",
            folder,
        ).points()
    )


def packed(folder: Path, *words: str) -> SentFiles:
    found = programs(folder, {"command": ["true", *words]})
    return packed_programs([program for _, program in found], Path("runs"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    for name in ("train.py", "package/model.py", "runs/mine/big", ".git/objects/x", "venv/pyvenv.cfg", "venv/bin/a"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "checkpoints").mkdir()
    monkeypatch.chdir(folder)
    return folder


def names(sent: SentFiles) -> list[str]:
    return tarfile.open(fileobj=io.BytesIO(sent.archive)).getnames()


def test_the_current_folder_is_sent_without_what_is_no_part_of_the_program(project: Path) -> None:
    (project / "before" / "trials").mkdir(parents=True)
    (project / "before" / "manifest.json").write_text("{}")
    assert names(packed(project)) == ["0", "0/train.py", "0/checkpoints", "0/package", "0/package/model.py"]


def test_a_program_can_be_executed_there_and_links_are_links(project: Path, tmp_path: Path) -> None:
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    (project / "data").symlink_to("/data")
    (project / "package" / "again.py").symlink_to("model.py")
    os.mkfifo(project / "pipe")
    there = tmp_path / "there"
    there.mkdir()
    unpack(packed(project).archive, there)
    assert os.access(there / "0/run.sh", os.X_OK)
    assert (there / "0/data").readlink() == Path("/data")
    assert (there / "0/package/again.py").read_text() == "package/model.py"
    assert not (there / "0/pipe").exists()


def test_the_same_files_are_the_same_bytes(project: Path) -> None:
    one = packed(project)
    os.utime(project / "train.py", (0, 0))
    assert packed(project).digest == one.digest
    (project / "train.py").write_text("other")
    assert packed(project).digest != one.digest


def test_the_folder_of_the_experiment_goes_along_where_a_word_names_it(project: Path, tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "config").write_text("")
    assert packed(beside).roots == (project,)
    both = packed(beside, "--at={folder}/config")
    assert both.roots == (beside, project)
    assert both.place(str(beside / "config")) == "0/config"
    assert both.place(str(project / "train.py")) == "1/train.py"


def test_of_a_folder_in_the_other_only_the_other_is_sent(project: Path) -> None:
    assert packed(project / "package", "{folder}/x").roots == (project,)


@pytest.mark.parametrize("limit", ["MOST_BYTES", "MOST_FILES"])
def test_a_folder_that_is_more_than_a_program_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(sent_programs, limit, 1)
    with pytest.raises(InputError, match=rf"^{project}: has more than .* start wanbed in a folder that has only what"):
        packed(project)


def test_each_program_is_there_once_with_its_first_field(project: Path) -> None:
    found = programs(project, {"command": ["true"]}, {"command": ["false"]})
    assert [(field, program.spec.command) for field, program in found] == [
        ("variants.0.program", ("true",)),
        ("variants.1.program", ("false",)),
    ]
