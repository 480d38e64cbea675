from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.strict_model import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.trainings.program.on_hosts.program_check import check_programs


def check(folder: Path, **program: Any) -> None:
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "40ms", "rate": "1Gbit"},
        },
        "variants": [{"name": "mine", "program": {"command": ["{python}", "train.py"], **program}}],
    }
    (point,) = parse_experiment(document, "exp.yaml", folder).points()
    check_programs(point)


@pytest.mark.parametrize(
    "program",
    [
        {},
        {"command": ["sh", "-c", "true"]},
        {"command": ["./train.sh"]},
        {"command": ["{folder}/train.sh"]},
        {"command": ["./{host}.sh"]},
        {"command": ["made-by-setup"], "setup": ["sh", "prepare.sh"]},
        {"command": ["mine"], "env": {"PATH": "{folder}/bin"}},
        {"launcher": "torchrun"},
    ],
)
def test_a_program_that_is_there_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Any) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("train.sh", "bin/mine"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    check(tmp_path, **program)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            {"command": ["nosuchprogram"]},
            "variants.0.program.command: 'nosuchprogram': there is no such program on PATH",
        ),
        (
            {"command": ["./nosuch.sh"]},
            "variants.0.program.command: './nosuch.sh': there is no such program here, in /",
        ),
        ({"command": ["/tmp"]}, "there is no such program here"),
        ({"command": ["./plain.txt"]}, "it is not executable: chmod"),
        ({"setup": ["nosuchsetup"]}, "variants.0.program.setup: 'nosuchsetup'"),
        ({"also": [{"host": "east-0", "command": ["nosuch"]}]}, "variants.0.program.also.0.command: 'nosuch'"),
        (
            {"command": ["sh"], "env": {"PATH": "/nowhere"}},
            "variants.0.program.command: 'sh': there is no such program",
        ),
    ],
)
def test_one_that_is_not_is_named_with_its_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Any, said: str
) -> None:
    (tmp_path / "plain.txt").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        check(tmp_path, **program)
    assert said in str(caught.value)


def test_torchrun_has_to_be_on_path_where_the_command_names_no_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(InputError, match=r"program\.launcher: 'torchrun'"):
        check(tmp_path, launcher="torchrun", command=["/bin/sh", "-c", "true"])
