from typing import Any

import pytest

from ground.strict_model import InputError, parse_model
from runner.experiment.variant_spec import PROGRAM, VariantSpec

TRAIN = ["python", "train.py"]


def variant(program: object, **more: Any) -> VariantSpec:
    return parse_model(VariantSpec, {"name": "mine", "program": program, **more}, "exp.yaml")


def refusal(program: object, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        variant(program, **more)
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_a_program_takes_the_place_of_a_schedule() -> None:
    read = variant({"command": TRAIN})
    assert read.schedule == PROGRAM
    assert read.program is not None
    assert (read.program.command, read.program.launcher, read.program.rendezvous) == (tuple(TRAIN), "none", None)
    assert (read.program.marked_by, read.program.profile, read.program.timeout) == ("optimizer", 1, 300 * 10**9)


def test_torchrun_meets_by_c10d_and_a_pattern_marks_by_output_without_a_profiler() -> None:
    read = variant({"command": TRAIN, "launcher": "torchrun", "pattern": "step [0-9]+"}).program
    assert read is not None
    assert (read.rendezvous, read.marked_by, read.profile) == ("c10d", "output", 0)


def test_a_variant_with_a_program_is_read_back_as_it_was_written() -> None:
    program = {"command": TRAIN, "env": {"A": "{rank}"}, "timeout": "600s", "also": [{"host": "a", "command": ["b"]}]}
    read = variant(program)
    document = read.model_dump(mode="json")
    assert parse_model(VariantSpec, document, "again") == read
    assert document["program"]["timeout"] == "600s"


def test_a_variant_without_a_program_has_no_such_key() -> None:
    assert "program" not in VariantSpec(name="a", schedule="gpipe").model_dump(mode="json")


@pytest.mark.parametrize(
    ("program", "more", "said"),
    [
        (None, {}, "schedule: this field is required: give a schedule, like 1f1b, or a program"),
        ({"command": TRAIN}, {"schedule": "gpipe"}, "leave one of program and schedule out"),
        ({}, {}, "program.command: this field is required"),
        ({"command": "python train.py"}, {}, "no list of words: write a command like [python, train.py]"),
        ({"command": []}, {}, "no list of words"),
        ({"command": [" "]}, {}, "program.command: entry 0: the program's name is empty"),
        ({"command": ["a", 1]}, {}, "program.command: entry 1: 1 is not text: put it in quotes"),
        ({"command": ["a\0b"]}, {}, "no NUL"),
        ({"command": ["{rnak}"]}, {}, "{rnak} is no placeholder: did you mean 'rank'"),
        ({"command": TRAIN, "rendezvous": "static"}, {}, "rendezvous: only torchrun has one"),
        ({"command": ["a", "{rank}"], "launcher": "torchrun"}, {}, "torchrun sets RANK: read it from the environment"),
        ({"command": TRAIN, "setup": ["a", "{rank}"]}, {}, "setup: {rank} is not known here"),
        ({"command": TRAIN, "pattern": "("}, {}, "no regular expression"),
        ({"command": TRAIN, "marked_by": "output"}, {}, "pattern: lines that end an iteration are found by it"),
        ({"command": TRAIN, "marked_by": "call", "pattern": "a"}, {}, "iterations are marked by call: leave pattern"),
        ({"command": TRAIN, "pattern": "a", "profile": 2}, {}, "too late to start a profiler"),
        ({"command": TRAIN, "env": {"A B": "1"}}, {}, "no name of a variable"),
        ({"command": TRAIN, "env": {"A": 1}}, {}, "env: the value of A: 1 is not text: put it in quotes"),
        ({"command": TRAIN, "env": ["A"]}, {}, "not a mapping"),
        ({"command": TRAIN, "env": {"WANBED_HOOK": "1"}}, {}, "WANBED_HOOK is wanbed's own: leave it out"),
        ({"command": TRAIN, "timeout": "10ms"}, {}, "timeout: it is not from 1s to 86400s"),
        ({"command": TRAIN, "output_limit": "1GiB1"}, {}, "output_limit"),
        ({"command": TRAIN, "iterations": 1}, {}, "iterations: 1 is not a whole number from 2"),
        ({"command": TRAIN, "warmup": 0}, {}, "warmup: 0 is not a whole number from 1"),
        ({"command": TRAIN, "lauchner": "none"}, {}, "unknown field, did you mean 'launcher'"),
        ({"command": TRAIN, "also": [{"host": "a"}]}, {}, "also.0.command: this field is required"),
    ],
)
def test_a_program_that_cannot_be_run_is_refused_in_one_line(program: object, more: dict[str, Any], said: str) -> None:
    assert said in refusal(program, **more)
