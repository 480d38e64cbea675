import pytest

from results.comparison.manifest_fields import flattened

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
