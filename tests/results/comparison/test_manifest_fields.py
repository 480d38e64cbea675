from hashlib import sha256

import pytest

from wanbed.results.comparison.manifest_fields import command_text, course_text, flattened, is_command, trace_text

DOCUMENT = {
    "a": {"b": 1},
    "variants": [{"name": "gpipe", "schedule": "x"}],
    "links": [[1, {"c": None}], []],
    "e": [2, 3],
}


def test_paths_are_those_of_overrides() -> None:
    assert dict(flattened(DOCUMENT)) == {
        "a.b": 1,
        "variants.0.name": "gpipe",
        "variants.0.schedule": "x",
        "links.0.0": 1,
        "links.0.1.c": None,
        "links.1": [],
        "e.0": 2,
        "e.1": 3,
    }


def test_entries_of_a_list_can_go_by_their_names() -> None:
    assert dict(flattened(DOCUMENT, named=True)) == {
        "a.b": 1,
        "variants.gpipe.name": "gpipe",
        "variants.gpipe.schedule": "x",
        "links.0.0": 1,
        "links.0.1.c": None,
        "links.1": [],
        "e": [2, 3],
    }


@pytest.mark.parametrize("named", [False, True])
def test_a_command_is_one_value_as_one_would_type_it(named: bool) -> None:
    program = {"program": {"command": ["python", "train.py", "--note", "two words"], "iterations": 20}}
    assert dict(flattened(program, named=named)) == {
        "program.command": "python train.py --note 'two words'",
        "program.iterations": 20,
    }


def test_a_course_and_a_trace_are_one_line_each() -> None:
    course = {"source": "drift.csv", "changes": 7, "sha256": "0123456789abcdef", "period_ns": 2_500_000_000}
    assert course_text(course) == "drift.csv (7 changes, begins anew every 2.5 s, SHA-256 0123456789ab)"
    assert course_text({**course, "synthetic": True, "period_ns": None}) == (
        "drift.csv (7 changes, synthetic, SHA-256 0123456789ab)"
    )
    text = "t_s,rate\n0,1Gbit\n"
    assert trace_text(text) == f"2 lines, SHA-256 {sha256(text.encode()).hexdigest()[:12]}"
    found = dict(flattened({"wan": [{"course": course}], "traces": {"a.csv": text}, "course": {}}))
    assert found == {"wan.0.course": course_text(course), "traces.a.csv": trace_text(text), "course": course_text({})}


def test_a_command_is_a_list_of_words_that_is_not_empty_under_its_name() -> None:
    assert is_command("command", ["a"])
    assert is_command("setup", ("a", "b"))
    assert not any((is_command("command", []), is_command("command", ["a", 1]), is_command("words", ["a"])))
    assert not is_command("command", "a")
    assert command_text(["a b", "c"]) == "'a b' c"
