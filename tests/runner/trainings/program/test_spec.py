from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.present import present
from tests.support.runner.taken_values import taken, takes_from_to, words_of_refusal
from wanbed.ground.errors import InputError
from wanbed.ground.strict_model import parse_model
from wanbed.runner.experiment.variant_spec import PROGRAM, VariantSpec
from wanbed.runner.trainings.program.spec import PLACEHOLDERS, ProgramSpec, check_placeholders, filled, placeholders_in

VALUES = {name: f"<{name}>" for name in PLACEHOLDERS}


def test_a_placeholder_is_filled_wherever_it_stands_in_a_word() -> None:
    assert filled("--out=/tmp/{host}/{rank}.log", {"host": "east-0", "rank": "3"}) == "--out=/tmp/east-0/3.log"


def test_doubled_braces_stand_for_the_text_itself() -> None:
    assert filled("{{rank}} {rank}", {"rank": "3"}) == "{rank} 3"
    assert placeholders_in("{{rank}}") == set()


@pytest.mark.parametrize("word", ['{"a": {"b": 1}}', "print({1: 2})", "${HOME}", "{}", "{Rank}", "f'{x+1}'", "a{1,2}"])
def test_braces_around_anything_but_a_lower_case_name_stay(word: str) -> None:
    check_placeholders(word)
    assert filled(word, {}) == word


def test_a_misspelt_placeholder_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match=r"\{world_sze\} is no placeholder: did you mean 'world_size'"):
        check_placeholders("--n={world_sze}")


@given(st.text())
def test_a_word_that_is_accepted_can_be_filled(word: str) -> None:
    try:
        check_placeholders(word)
    except ValueError:
        return
    filled(word, VALUES)


@given(st.lists(st.sampled_from(PLACEHOLDERS)), st.text("abc {}", max_size=3))
def test_every_placeholder_of_a_word_is_named_and_replaced(names: list[str], between: str) -> None:
    between = between.replace("{", "").replace("}", "")
    word = between.join(f"{{{name}}}" for name in names)
    assert placeholders_in(word) == set(names)
    assert filled(word, VALUES) == between.join(VALUES[name] for name in names)


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
    read = present(variant({"command": TRAIN, "launcher": "torchrun", "pattern": "step [0-9]+"}).program)
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
        ({"command": TRAIN}, {"schedule": "gpipe"}, "leave program or schedule out"),
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


def test_what_is_left_out_is_as_the_page_of_the_experiment_file_says() -> None:
    spec = ProgramSpec.model_validate({"command": TRAIN})
    assert (spec.processes_per_host, spec.iterations, spec.warmup, spec.tokens) == (None, None, None, None)
    assert (spec.setup, spec.also, spec.env, spec.read_only) == (None, (), {}, False)
    assert (spec.timeout, spec.output_limit) == (300 * 10**9, 64 * 2**20)


def test_counts_are_taken_from_end_to_end_of_their_range() -> None:
    for field, least, most in (
        ("processes_per_host", 1, 256),
        ("iterations", 2, 10_000),
        ("warmup", 1, 10_000),
        ("profile", 0, 10_000),
        ("tokens", 1, 10**12),
    ):
        assert takes_from_to(ProgramSpec, field, least, most, command=TRAIN), field


def test_a_timeout_is_from_a_second_to_a_day_and_output_from_1_kib_to_1_gib() -> None:
    assert taken(ProgramSpec, "timeout", "1s", "86400s", command=TRAIN) == [10**9, 86_400 * 10**9]
    assert "it is not from 1s to 86400s" in words_of_refusal(ProgramSpec, command=TRAIN, timeout="999999999ns")
    assert "86400s" in words_of_refusal(ProgramSpec, command=TRAIN, timeout="86400.000000001s")
    assert taken(ProgramSpec, "output_limit", "1KiB", "1GiB", command=TRAIN) == [1024, 2**30]
    for written in ("1023B", "1073741825B"):
        words = words_of_refusal(ProgramSpec, command=TRAIN, output_limit=written)
        assert "it is not from 1KiB to 1GiB" in words


def test_a_command_has_up_to_a_thousand_words_of_a_hundred_thousand_characters() -> None:
    assert len(taken(ProgramSpec, "command", ["a"] * 1000)[0]) == 1000
    assert "no list of words" in words_of_refusal(ProgramSpec, command=["a"] * 1001)
    assert taken(ProgramSpec, "command", ["a" * 100_000]) == [("a" * 100_000,)]
    assert "entry 1: " in words_of_refusal(ProgramSpec, command=["a", "a" * 100_001])


def test_a_variable_that_lets_traffic_around_the_emulated_links_is_refused() -> None:
    for name, value in (("NCCL_HOSTID", "a"), ("NCCL_IB_DISABLE", "0"), ("UCX_TLS", "ib")):
        assert f"the value of {name}: " in words_of_refusal(ProgramSpec, command=TRAIN, env={name: value})
    assert taken(ProgramSpec, "env", {"NCCL_IB_DISABLE": "1"}, command=TRAIN)
    assert taken(ProgramSpec, "env", {"_A1": "x", "b": "{rank}"}, command=TRAIN) == [{"_A1": "x", "b": "{rank}"}]
    for wrong in ("1A", "", "A-B", 5):
        assert "is no name of a variable" in words_of_refusal(ProgramSpec, command=TRAIN, env={wrong: "1"})


def test_torchs_launcher_alone_tells_ranks_so_that_no_placeholder_of_a_rank_stands_before_it() -> None:
    own = {"command": ["a", "{rank}"], "env": {"A": "{local_rank}"}}
    assert taken(ProgramSpec, "launcher", "none", **own) == ["none"]
    assert "env: {local_rank} is not known here, torchrun sets LOCAL_RANK" in words_of_refusal(
        ProgramSpec, command=TRAIN, launcher="torchrun", env=own["env"]
    )
    beside = {"also": [{"host": "east-0", "command": ["b", "{rank}"]}]}
    for launcher in ("none", "torchrun"):
        words = words_of_refusal(ProgramSpec, command=TRAIN, launcher=launcher, **beside)
        assert "also.0.command: {rank} is not known here, it belongs to no process that trains" in words
        words = words_of_refusal(ProgramSpec, command=TRAIN, launcher=launcher, setup=["b", "{rank}"])
        assert "setup: {rank} is not known here, it belongs to no process that trains" in words


def test_what_is_written_is_not_replaced_by_a_default() -> None:
    assert taken(ProgramSpec, "rendezvous", "static", command=TRAIN, launcher="torchrun") == ["static"]
    assert taken(ProgramSpec, "profile", 0, 3, command=TRAIN) == [0, 3]
    assert taken(ProgramSpec, "profile", 2, command=TRAIN, marked_by="call") == [2]
    assert taken(ProgramSpec, "profile", None, command=TRAIN, marked_by="call") == [1]


def test_the_document_has_no_field_that_is_empty_and_every_other_one() -> None:
    document = ProgramSpec.model_validate({"command": TRAIN}).model_dump(mode="json")
    assert document == {
        "command": TRAIN,
        "launcher": "none",
        "profile": 1,
        "marked_by": "optimizer",
        "read_only": False,
        "timeout": "300s",
        "output_limit": "64MiB",
    }
    more = {"setup": ["a"], "env": {"A": "1"}, "tokens": 7, "processes_per_host": 2}
    assert ProgramSpec.model_validate({"command": TRAIN, **more}).model_dump(mode="json") == {**document, **more}


def test_the_document_of_a_variant_has_its_programs_without_what_is_empty() -> None:
    document = variant({"command": TRAIN}).model_dump(mode="json")["program"]
    assert document == ProgramSpec.model_validate({"command": TRAIN}).model_dump(mode="json")
    assert "setup" not in document
