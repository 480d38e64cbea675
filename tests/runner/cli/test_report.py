import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.runner.commands_here import called, printed, refusal
from tests.support.runner.small_experiment import small


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the file of a small experiment, and its run."""
    folder = tmp_path_factory.mktemp("simulated")
    (folder / "small.yaml").write_text(
        yaml.safe_dump(small(training={"stages": 4, "microbatches": 4, "iterations": 2}))
    )
    called("simulate", folder / "small.yaml", "--runs", folder / "runs")
    return folder


@pytest.fixture
def run(simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder of a small run, below where the commands are typed."""
    shutil.copytree(simulated, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    (path,) = Path("runs").iterdir()
    (path / "report.html").unlink()
    return str(path)


def test_with_json_the_page_s_place_is_one_document(run: str) -> None:
    assert printed("report", run) == {"report": f"{run}/report.html"}
    assert (Path(run) / "report.html").is_file()


@pytest.mark.parametrize(
    ("form", "is_right"),
    [
        ("csv", lambda text: len(list(csv.DictReader(io.StringIO(text)))) == 1),
        ("md", lambda text: text.startswith("**Results**\n\n| variant | iteration time |")),
        ("json", lambda text: len(json.loads(text)["headline"]) == 1),
    ],
)
def test_tables_are_printed_and_nothing_is_written(run: str, form: str, is_right: Callable[[str], bool]) -> None:
    before = sorted(Path().rglob("*"))
    assert is_right(called("report", run, "--format", form).stdout)
    assert sorted(Path().rglob("*")) == before


def test_tables_go_to_a_file_or_with_a_dash_to_standard_output(run: str) -> None:
    tables = called("report", run, "--format", "csv").stdout
    assert printed("report", run, "--format", "csv", "--output", "table.csv") == {"report": "table.csv"}
    assert Path("table.csv").read_text(encoding="utf-8") == tables
    assert called("report", run, "--format", "csv", "--output", "-").stdout == tables


def test_figures_are_written_and_listed(run: str) -> None:
    figures = printed("report", run, "--figures", "figures")["figures"]
    assert sorted(figures) == sorted(map(str, Path("figures").iterdir()))
    assert "figures/iteration-time-column.pdf" in figures


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--format", "md", "--json"], "--json: standard output is for the md tables, give them an --output"),
        (["--output", "-"], "--output -: only tables go to standard output, give the page a file, or a --format"),
        (["--output", "runs"], "runs: cannot be written (it is a folder), give another --output"),
        (["--figures", "small.yaml"], "small.yaml: cannot be written (File exists), give another --figures"),
        *(
            ([option, path], f"{path}: cannot be written (No such file or directory), give another {option}")
            for option, path in (("--figures", "a/b/c"), ("--output", "no/such/x.html"))
        ),
    ],
)
def test_what_cannot_be_written_as_asked_is_refused_and_no_folder_is_made(
    run: str, asked: list[str], words: str
) -> None:
    assert refusal("report", run, *asked) == words


@pytest.mark.parametrize("option", ["--output", "--figures"])
def test_an_empty_path_is_refused(run: str, option: str) -> None:
    assert refusal("report", run, option, "").startswith(f"{option} '': an empty path names no file and no folder: ")


@pytest.mark.parametrize(
    "asked",
    [
        ["--chart", "nope"],
        ["--point", "99"],
        ["--variant", "nope"],
        ["--label", "nope=x"],
        ["--log", "x", "--chart", "timeline"],
        ["--log", "y", "--limits", "y=0:1"],
        ["--figures", "small.yaml"],
        ["--output", "no/such/x.html"],
    ],
)
def test_an_option_that_does_not_fit_the_run_leaves_everything_as_it_was(run: str, asked: list[str]) -> None:
    page = Path(run) / "report.html"
    page.write_text("the page before")
    refusal("report", run, "--figures", "figures", *asked)
    assert page.read_text() == "the page before"


def test_an_unknown_format_is_bad_usage(run: str) -> None:
    called("report", run, "--format", "pdf", status=2)
