import ast
from pathlib import Path

import pytest

from wanbed.runner.experiments.shipped_experiments import (
    ShippedExperiment,
    instead_of,
    shipped_experiment,
    shipped_experiments,
)

SHIPPED = shipped_experiments()
PROGRAMS = [each for each in SHIPPED if each.of_a_program]


def written(folder: Path, text: str) -> ShippedExperiment:
    (folder / "own.yaml").write_text(text)
    return ShippedExperiment(folder / "own.yaml")


def test_names_are_unique_and_those_of_the_paper_come_last() -> None:
    names = [each.name for each in SHIPPED]
    assert len(set(names)) == len(names)
    assert [each.of_the_paper for each in SHIPPED] == sorted(each.of_the_paper for each in SHIPPED)
    assert {"first", "demo", "headline-gpt-a"} <= set(names)


def test_an_experiment_with_a_program_names_the_files_that_it_needs_beside_it() -> None:
    diloco, first = shipped_experiment("torchft-diloco"), shipped_experiment("first")
    assert diloco is not None
    assert first is not None
    assert [path.name for path in diloco.beside] == ["torchft_diloco.py", "torchft-diloco.txt"]
    assert diloco.packages == ("torch", "torchft")
    assert (first.beside, first.packages) == ((), ())


@pytest.mark.parametrize("experiment", PROGRAMS, ids=lambda each: each.name)
def test_a_program_runs_its_own_script_in_the_folder_of_its_file(experiment: ShippedExperiment) -> None:
    assert experiment.program is not None
    assert experiment.program.is_file()
    assert f'"{{python}}", "{{folder}}/{experiment.program.name}"' in experiment.path.read_text()


@pytest.mark.parametrize("experiment", PROGRAMS, ids=lambda each: each.name)
def test_a_program_knows_nothing_of_this_project(experiment: ShippedExperiment) -> None:
    assert experiment.program is not None
    tree = ast.parse(experiment.program.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "wanbed" not in {name.partition(".")[0] for name in imported}
    assert "wanbed" not in experiment.program.read_text().lower()


@pytest.mark.parametrize("experiment", SHIPPED, ids=lambda each: each.name)
def test_each_says_in_a_sentence_or_two_what_it_shows(experiment: ShippedExperiment) -> None:
    assert 20 < len(experiment.shows) < 240
    assert experiment.shows[-1] in ".?"


def test_the_line_for_editors_is_no_part_of_what_a_file_shows(tmp_path: Path) -> None:
    text = "# yaml-language-server: $schema=../schema.json\n# What one\n# connection moves.\n#\n# More.\nname: x\n"
    assert written(tmp_path, text).shows == "What one connection moves."


def test_the_clock_is_read_from_the_file(tmp_path: Path) -> None:
    assert written(tmp_path, "# A.\nclock: virtual\n").clock == "virtual"
    assert written(tmp_path, "# A.\n# clock: virtual\n").clock == "real"


@pytest.mark.parametrize("experiment", SHIPPED, ids=lambda each: each.name)
def test_a_copy_differs_in_the_line_for_editors_alone(experiment: ShippedExperiment, tmp_path: Path) -> None:
    def content(text: str) -> list[str]:
        return [line for line in text.splitlines() if "yaml-language-server" not in line]

    assert content(experiment.text_for(tmp_path)) == content(experiment.path.read_text())


def test_a_copy_elsewhere_finds_the_schema_that_the_original_names(tmp_path: Path) -> None:
    original = written(tmp_path, "# yaml-language-server: $schema=../experiment/schema.json\n# A.\nname: x\n")
    schema = (tmp_path.parent / "experiment" / "schema.json").resolve()
    assert original.text_for(tmp_path / "other") == f"# yaml-language-server: $schema={schema}\n# A.\nname: x\n"
    assert original.text_for(tmp_path) == original.path.read_text()


def test_a_schema_on_the_web_stays(tmp_path: Path) -> None:
    original = written(tmp_path, "# yaml-language-server: $schema=https://example.org/x.json\n# A.\n")
    assert original.text_for(tmp_path / "other") == original.path.read_text()


def test_an_unknown_name_has_near_ones() -> None:
    assert shipped_experiment("firts") is None
    assert instead_of("firts") == "did you mean 'first'?"
    assert instead_of("zzz") == "wanbed examples lists them"
