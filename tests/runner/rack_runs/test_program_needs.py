from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.runner.rack_runs.test_sent_programs import programs
from tests.support.refused import refused
from wanbed.runner.rack_runs.sent_programs import ProgramNeeds, lacking_program, packed_programs, program_needs


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("pass")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (tmp_path / "data").write_text("tokens")
    monkeypatch.chdir(folder)
    return folder


def needs(**program: Any) -> ProgramNeeds:
    found = programs(Path.cwd(), program)
    return program_needs(found, packed_programs([each for _, each in found], Path("runs")))


@pytest.mark.parametrize(
    "program",
    [
        {"command": ["{python}", "train.py"]},
        {"command": ["./run.sh", "{folder}/train.py", "{rank}"]},
        {"command": ["{folder}/run.sh"], "env": {"PATH": "{folder}/bin"}},
        {"command": ["mine"], "env": {"PATH": "{folder}/bin"}},
        {"command": ["./{host}.sh"]},
    ],
)
def test_what_is_sent_or_of_wanbed_is_not_wanted(program: dict[str, Any]) -> None:
    assert needs(**program) == ProgramNeeds()


def test_a_program_that_is_not_sent_has_to_be_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted in (needs(command=["sh", "-c", "true"]), needs(command=["/bin/sh", "run.sh"])):
        assert [each.name for each in wanted.programs] in (["sh"], ["/bin/sh"])
        assert lacking_program(wanted) is None
    wanted = needs(command=["no-such-program"], also=[{"host": "east-0", "command": ["/no/lighthouse"]}])
    assert lacking_program(wanted) == (
        "variants.0.program.command: 'no-such-program': there is no such program on PATH: install it, or give its path"
    )
    assert lacking_program(ProgramNeeds(wanted.programs[1:])) == (
        "variants.0.program.also.0.command: '/no/lighthouse': there is no such program here, in "
        f"{Path.cwd()}: give the path of one"
    )
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert "'sh': there is no such program on PATH" in str(lacking_program(needs(command=["sh"])))
    assert lacking_program(needs(command=["sh"], env={"PATH": "/bin"})) is None


def test_a_file_at_a_path_of_its_own_has_to_be_the_same_on_the_machine(tmp_path: Path) -> None:
    data = tmp_path / "data"
    wanted = needs(command=["{python}", "train.py", str(data)])
    (file,) = wanted.files
    assert file.digest == sha256(b"tokens").hexdigest()
    assert lacking_program(wanted) is None
    data.write_text("others")
    remedy = "put it there, or start wanbed in a folder that has it"
    assert lacking_program(wanted) == (
        f"variants.0.program.command: {data}: it is another file than on the machine that drives: {remedy}"
    )
    data.unlink()
    assert lacking_program(wanted) == (
        f"variants.0.program.command: {data}: there is no such file there, and it is not sent: {remedy}"
    )


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ({"command": ["cat", "../data"]}, "variants.0.program.command: '../data': {above}/data is not among the files"),
        ({"command": ["cat"], "setup": ["cp", "{folder}/../data", "."]}, "variants.0.program.setup: "),
        ({"command": ["./none.sh"]}, "variants.0.program.command: './none.sh': there is no such program here"),
        ({"command": ["./train.py"]}, "it is not executable: chmod"),
        ({"command": ["../tool.sh"]}, "start wanbed above it"),
    ],
)
def test_what_can_be_neither_sent_nor_there_is_refused_with_its_field(
    program: dict[str, Any], said: str, tmp_path: Path
) -> None:
    (tmp_path / "tool.sh").write_text("#!/bin/sh\n")
    (tmp_path / "tool.sh").chmod(0o755)
    assert said.format(above=tmp_path) in refused(lambda: needs(**program))
