"""The configuration of a program's process: written, read back, and completed by torchrun's environment."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wanbed.results.records.span_log import RankPlace
from wanbed.workloads.user_programs.program_config import MarkedOutput, OutputConfig, ProgramConfig, read_program_config

MARKS = MarkedOutput(
    r"step (\d+)", "/run/spans-{rank}.jsonl", RankPlace(0, "west-0", "west", 0, 0, 0), iterations=20, epoch_ns=7
)
OUTPUT = OutputConfig("/run/stdout-{rank}", "/run/stderr-{rank}", 2**20, "/run/fault-{rank}")
CONFIG = ProgramConfig(
    label="rank {rank} on west-0",
    command=("python", "train.py"),
    folder="/home/me",
    output=OUTPUT,
    grace_s=2.5,
    environment={"A": "b"},
    marks=MARKS,
    hook={"log": "/run/spans-{rank}.jsonl", "header": {"rank": 0, "gpu": 0, "host": "west-0", "pipeline": 0}},
    rank_from_environment=True,
)


def test_it_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    CONFIG.write(tmp_path / "program.json")
    assert read_program_config(tmp_path / "program.json") == CONFIG


def test_the_rank_comes_from_torchruns_environment() -> None:
    config = CONFIG.at_rank({"RANK": "12", "LOCAL_RANK": "3"})
    assert config.label == "rank 12 on west-0"
    assert config.output == OutputConfig("/run/stdout-12", "/run/stderr-12", 2**20, "/run/fault-12")
    header = RankPlace(12, "west-0", "west", 3, 12, 0)
    assert config.marks == replace(MARKS, span_log="/run/spans-12.jsonl", header=header)
    assert config.hook == {
        "log": "/run/spans-12.jsonl",
        "header": {"rank": 12, "gpu": 3, "host": "west-0", "pipeline": 12},
    }


def test_a_rank_that_the_runner_knows_is_left_as_it_is() -> None:
    known = replace(CONFIG, rank_from_environment=False)
    assert known.at_rank({"RANK": "12", "LOCAL_RANK": "3"}) is known


@pytest.mark.parametrize("environment", [{}, {"RANK": "one", "LOCAL_RANK": "0"}, {"RANK": "1", "LOCAL_RANK": "-1"}])
def test_a_rank_that_is_no_number_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"^rank_from_environment: (LOCAL_)?RANK is '(one|-1|)', which is no number$"):
        CONFIG.at_rank(environment)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"command": ()}, "command: name a program"),
        ({"command": ("",)}, "command: name a program"),
        ({"folder": "home"}, "folder: 'home' is no absolute path"),
        ({"environment": {"A": 1}}, "environment.A: 1 is no text"),
        ({"grace_s": -1.0}, "grace_s: -1.0 is below 0"),
        ({"hook": {"log": "spans"}}, "hook.log: give the absolute path of its span log"),
        ({"hook": {}}, "hook.log: give the absolute path of its span log"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_field(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the whole message is compared
        replace(CONFIG, **fields)
    assert str(refused.value).startswith(fault)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"stdout": "stdout"}, "stdout: 'stdout' is no absolute path"),
        ({"stderr": "stderr"}, "stderr: 'stderr' is no absolute path"),
        ({"fault": "fault"}, "fault: 'fault' is no absolute path"),
        ({"limit_bytes": 0}, "limit_bytes: 0 is below 1"),
    ],
)
def test_files_of_output_that_do_not_fit_are_refused_by_their_field(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the whole message is compared
        replace(OUTPUT, **fields)
    assert str(refused.value) == fault


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"span_log": "spans"}, "span_log: 'spans' is no absolute path"),
        ({"iterations": 0}, "iterations: 0 is not from 1 to 10000"),
        ({"pattern": "("}, "pattern: '(' is no regular expression: "),
    ],
)
def test_marks_that_do_not_fit_are_refused_by_their_field(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the whole message is compared
        replace(MARKS, **fields)
    assert str(refused.value).startswith(fault)
