import json
from pathlib import Path

import pytest

from tests.support.runner.commands_here import called, printed, refusal, wanbed
from wanbed.runner.experiments.shipped_experiments import FOLDER, shipped_experiments


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_experiment_is_listed_with_what_it_shows_and_needs() -> None:
    text = wanbed("examples").stdout
    for each in shipped_experiments():
        (line,) = (line for line in text.splitlines() if line.startswith(f"│ {each.name} "))
        assert ("make virtual" in line) == (each.clock == "virtual")
    assert "The smallest experiment that shows something" in text


def test_the_list_as_json_gives_names_and_files() -> None:
    listed = printed("examples")["examples"]
    first = next(each for each in listed if each["name"] == "first")
    assert (first["file"], first["clock"], first["torch"]) == (str(FOLDER / "first.yaml"), "real", False)
    ddp = next(each for each in listed if each["name"] == "ddp")
    assert (ddp["clock"], ddp["torch"], ddp["packages"]) == ("real", True, ["torch"])


def test_the_list_says_what_has_to_be_installed_for_a_program() -> None:
    (line,) = (line for line in wanbed("examples").stdout.splitlines() if line.startswith("│ torchft-diloco "))
    assert line.endswith("│ hosts, torch, torchft    │")


def test_a_copy_has_its_program_beside_it(folder: Path) -> None:
    files = ["torchft-diloco.yaml", "torchft_diloco.py", "torchft-diloco.txt"]
    assert wanbed("examples", "torchft-diloco").stdout.splitlines() == files
    for file in files[1:]:
        assert (folder / file).read_text() == (FOLDER / "programs" / file).read_text()
    called("run", "torchft-diloco.yaml", "--dry-run")
    (folder / "own").mkdir()
    done = wanbed("examples", "ddp", "--output", "own/mine.yaml", "--json")
    assert json.loads(done.stdout) == {"file": "own/mine.yaml", "beside": ["own/ddp.py"]}
    assert {path.name for path in (folder / "own").iterdir()} == {"mine.yaml", "ddp.py"}


def test_where_the_program_cannot_be_copied_nothing_is(folder: Path) -> None:
    (folder / "ddp.py").write_text("mine")
    assert refusal("examples", "ddp") == "ddp.py: the file exists already: give another --output"
    assert (folder / "ddp.py").read_text() == "mine"
    assert not (folder / "ddp.yaml").exists()


def test_a_copy_is_written_here_under_its_name(folder: Path) -> None:
    assert wanbed("examples", "first").stdout == "first.yaml\n"
    assert "name: east" in (folder / "first.yaml").read_text()


def test_a_copy_goes_where_it_is_sent(folder: Path) -> None:
    done = wanbed("examples", "fig4-timeline", "--output", "mine.yml", "--json")
    assert json.loads(done.stdout) == {"file": "mine.yml", "beside": []}
    assert wanbed("examples", "fig4-timeline", "--output", "-").stdout == (folder / "mine.yml").read_text()


def test_nothing_is_written_over(folder: Path) -> None:
    (folder / "first.yaml").write_text("mine")
    assert refusal("examples", "first") == "first.yaml: the file exists already: give another --output"
    assert (folder / "first.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["firts"], "firts: no shipped experiment has this name: did you mean 'first'?"),
        (["../first"], "../first: no shipped experiment has this name: did you mean 'first'?"),
        (["--output", "x.yaml"], "--output: nothing is copied without a NAME: give one"),
        (["first", "--output", "-", "--json"], "--output -: --json has standard output, give a file"),
        (["ddp", "--output", "ddp.py"], "--output ddp.py: the experiment's program has this name: give another"),
        (["first", "--output", "no/x.yaml"], "no/x.yaml: No such file or directory: give another place, or make room"),
    ],
)
def test_what_cannot_be_copied_is_refused_in_a_line(arguments: list[str], text: str) -> None:
    assert refusal("examples", *arguments) == text


@pytest.mark.parametrize("command", [["simulate"], ["run", "--dry-run", "--engine", "simulate"], ["plan"]])
def test_a_name_stands_for_the_shipped_experiment_in_every_command(command: list[str]) -> None:
    called(*command, "first")


def test_a_file_of_that_name_wins(folder: Path) -> None:
    (folder / "first").write_text("topology: {}\n")
    assert refusal("simulate", "first").startswith("first: topology.")


def test_a_folder_of_that_name_does_not(folder: Path) -> None:
    (folder / "first").mkdir()
    assert wanbed("simulate", "first", "--dry-run").stdout.startswith("first: gpipe, repeat 0\n")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("firts", "firts: no file here and no shipped experiment has this name: did you mean 'first'?"),
        ("x" * 300, f"{'x' * 300}: no file here and no shipped experiment has this name: wanbed examples lists them"),
        ("first.yaml", "first.yaml: cannot be read (No such file or directory): give the path of a readable YAML file"),
        ("./first", "first: cannot be read (No such file or directory): give the path of a readable YAML file"),
    ],
)
def test_what_is_neither_a_file_nor_a_name_is_refused_in_a_line(file: str, text: str) -> None:
    assert refusal("simulate", file) == text
