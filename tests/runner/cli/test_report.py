import csv
import io
import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.support.runner.commands_here import wanbed
from tests.support.runner.small_experiment import small

pytestmark = pytest.mark.usefixtures("unpainted")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the file of a small experiment, and its run."""
    folder = tmp_path_factory.mktemp("simulated")
    (folder / "small.yaml").write_text(
        yaml.safe_dump(small(training={"stages": 4, "microbatches": 4, "iterations": 2}))
    )
    assert wanbed("simulate", str(folder / "small.yaml"), "--runs", str(folder / "runs")).exit_code == 0
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
    done = wanbed("report", run, "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"report": f"{run}/report.html"})
    assert (Path(run) / "report.html").is_file()


@pytest.mark.parametrize("form", ["csv", "md", "json"])
def test_tables_are_printed_and_nothing_is_written(run: str, form: str) -> None:
    before = sorted(Path().rglob("*"))
    done = wanbed("report", run, "--format", form)
    assert done.exit_code == 0
    assert sorted(Path().rglob("*")) == before
    if form == "csv":
        assert len(list(csv.DictReader(io.StringIO(done.stdout)))) == 1
    elif form == "json":
        assert len(json.loads(done.stdout)["headline"]) == 1
    else:
        assert done.stdout.startswith("**Results**\n\n| variant | iteration time |")


def test_tables_go_to_a_file_if_asked(run: str) -> None:
    printed = wanbed("report", run, "--format", "csv").stdout
    done = wanbed("report", run, "--format", "csv", "--output", "table.csv", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"report": "table.csv"})
    assert Path("table.csv").read_text(encoding="utf-8") == printed


def test_figures_are_written_and_listed(run: str) -> None:
    text = json.loads(wanbed("report", run, "--figures", "figures", "--json").stdout)
    assert sorted(text["figures"]) == sorted(map(str, Path("figures").iterdir()))
    assert "figures/iteration-time-column.pdf" in text["figures"]


def test_standard_output_is_either_a_document_or_tables(run: str) -> None:
    done = wanbed("report", run, "--format", "md", "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "wanbed: --json: standard output is for the md tables, give them an --output\n"


def test_figures_that_cannot_be_written_are_refused(run: str) -> None:
    done = wanbed("report", run, "--figures", "small.yaml")
    assert done.exit_code == 2
    assert done.stderr == "wanbed: small.yaml: cannot be written (File exists), give another --figures\n"


def test_no_folder_above_what_is_written_is_made(run: str) -> None:
    for asked in (["--figures", "a/b/c"], ["--output", "no/such/x.html"]):
        done = wanbed("report", run, *asked)
        assert done.exit_code == 2
        assert done.stderr == (
            f"wanbed: {asked[1]}: cannot be written (No such file or directory), give another {asked[0]}\n"
        )
    assert not Path("a").exists()
    assert not Path("no").exists()


def test_a_dash_is_standard_output_for_tables_and_refused_for_the_page(run: str) -> None:
    printed = wanbed("report", run, "--format", "csv").stdout
    assert wanbed("report", run, "--format", "csv", "--output", "-").stdout == printed
    done = wanbed("report", run, "--output", "-")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "wanbed: --output -: only tables go to standard output, give the page a file, or a --format\n"
    )
    assert not Path("-").exists()


@pytest.mark.parametrize("option", ["--output", "--figures"])
def test_an_empty_path_is_refused(run: str, option: str) -> None:
    before = sorted(Path().rglob("*"))
    done = wanbed("report", run, option, "")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"wanbed: {option} '': an empty path names no file and no folder: ")
    assert sorted(Path().rglob("*")) == before


def test_a_folder_is_no_place_for_the_page(run: str) -> None:
    done = wanbed("report", run, "--output", "runs")
    assert (done.exit_code, done.stderr) == (
        2,
        "wanbed: runs: cannot be written (it is a folder), give another --output\n",
    )


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
    before = sorted(Path().rglob("*"))
    done = wanbed("report", run, "--figures", "figures", *asked)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert page.read_text() == "the page before"
    assert sorted(Path().rglob("*")) == before


def test_an_unknown_format_is_bad_usage(run: str) -> None:
    assert wanbed("report", run, "--format", "pdf").exit_code == 2
