"""The page says what works: its commands run (those that need root in the system tests), and its excerpts are real."""

import tomllib
from pathlib import Path

import pytest
import yaml

from tests.docs.example_scheduler import EXAMPLE, PAGE, blocks, commands, copied, run
from wanbed.runner.cli.command_line import app
from wanbed.workloads.schedules.registry import ENTRY_POINT_GROUP

ON_REAL_TCP = "emulated"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, copied and installed."""
    copy = copied(tmp_path_factory.mktemp("reader"))
    (install, *_) = commands()
    assert install.startswith("pip install")
    done = run(install, copy)
    assert done.returncode == 0, done.stderr
    return copy


def test_the_page_installs_tests_simulates_emulates_and_compares() -> None:
    words = [command.removeprefix("sudo ").split()[:2] for command in commands()]
    assert words == [
        ["pip", "install"],
        ["python", "-m"],
        ["wanbed", "simulate"],
        ["wanbed", "compare"],
        ["wanbed", "run"],
        ["wanbed", "compare"],
    ]


def test_the_commands_that_need_no_root_do_what_the_page_says(package: Path) -> None:
    for command in commands()[1:]:
        if ON_REAL_TCP not in command:
            done = run(command, package)
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    (text,) = (block for block in blocks("") if "of 1 pair" in block)
    assert text.strip() in done.stdout


def test_the_schedule_is_found_by_its_name_alone(package: Path) -> None:
    done = run("wanbed simulate experiment.yaml --dry-run", package)
    assert done.stdout.splitlines()[:2] == ["ahead-vs-1f1b: stock, repeat 0", "ahead-vs-1f1b: ours, repeat 0"]
    unknown = run("wanbed simulate experiment.yaml --dry-run --set variants.1.schedule=ahed-1f1b", package)
    assert "did you mean 'ahead-1f1b'" in unknown.stderr


def test_a_change_that_makes_it_slower_is_caught_in_the_simulator(package: Path) -> None:
    """Without running ahead it is 1f1b, and holding a single microbatch it is far slower."""
    setting = "--set variants.1.training.memory_bound=1 --runs slower --jobs 1"
    assert run(f"wanbed simulate experiment.yaml {setting}", package).returncode == 0
    done = run("wanbed compare slower/* slower/* --pair stock=ours", package)
    assert done.returncode == 1
    assert "REGRESSED: 1 of 1 pair" in done.stdout


@pytest.mark.parametrize(
    ("language", "file"),
    [
        ("python", "example_scheduler/ahead.py"),
        ("toml", "pyproject.toml"),
        ("yaml", "experiment.yaml"),
        ("yaml", ".github/workflows/schedule.yml"),
    ],
)
def test_the_pages_excerpts_stand_in_the_example(language: str, file: str) -> None:
    content = (EXAMPLE / file).read_text(encoding="utf-8")
    assert any(block in content for block in blocks(language))


def test_every_file_the_page_links_to_is_there() -> None:
    links = [text.partition(")")[0] for text in PAGE.read_text(encoding="utf-8").split("](")[1:]]
    assert len(links) >= 4
    assert [link for link in links if not (PAGE.parent / link).exists()] == []


def test_the_entry_point_is_in_the_group_that_wanbed_reads() -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert list(project["entry-points"]) == [ENTRY_POINT_GROUP]


def test_the_workflow_runs_commands_and_options_that_there_are() -> None:
    workflow = yaml.safe_load((EXAMPLE / ".github/workflows/schedule.yml").read_text(encoding="utf-8"))
    steps = [step.get("run", "") for step in workflow["jobs"]["compare"]["steps"]]
    lines = [line.strip() for step in steps for line in step.splitlines() if line.strip().startswith("wanbed ")]
    in_ci, in_the_page = (
        [line.split()[1] for line in own] for own in (lines, [each.removeprefix("sudo ") for each in commands()[2:]])
    )
    assert in_ci == in_the_page
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert set(in_ci) <= known
