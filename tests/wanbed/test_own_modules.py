"""Somebody's own files with the names of our packages, in the current folder and on PYTHONPATH, change nothing."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from wanbed.own_modules import OWN_PACKAGES, module_command

ROOT = Path(__file__).resolve().parents[2]
THEIRS = "raise SystemExit('a module of somebody else was imported')\n"
EXPERIMENT = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "10ms", "rate": "100Mbit"},
    },
    "compute": {"forward": "1ms", "backward": "2ms", "activation": "64KiB"},
    "training": {"microbatches": 2},
    "variants": [{"name": "gpipe", "schedule": "gpipe"}, {"name": "1f1b", "schedule": "1f1b"}],
}

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run_among_theirs(tmp_path: Path) -> Run:
    """Runs a command in a folder full of such files, which is on PYTHONPATH too, before this checkout."""
    for package in OWN_PACKAGES:
        if package != "wanbed":
            (tmp_path / f"{package}.py").write_text(THEIRS)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "__init__.py").write_text(THEIRS)

    def run(*command: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    return run


def test_python_alone_would_import_their_modules(run_among_theirs: Run) -> None:
    done = run_among_theirs(sys.executable, "-m", "runner.cli.command_line", "doctor")
    assert "a module of somebody else was imported" in done.stderr


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_command_works_through_to_its_report(run_among_theirs: Run, tmp_path: Path, jobs: str) -> None:
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    done = run_among_theirs(sys.executable, "-m", "wanbed", "simulate", "small.yaml", "--jobs", jobs, "--json")
    assert done.returncode == 0, done.stderr
    assert [row["variant"] for row in json.loads(done.stdout)["summary"]] == ["gpipe", "1f1b"]
    assert len(list(tmp_path.glob("runs/*/report.html"))) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("workloads.rank", "wanbed rank: usage: python -m workloads.rank CONFIG.json"),
        ("workloads.serving.pool_process", "usage: python -m workloads.serving.pool_process CONFIG.json"),
    ],
)
def test_a_process_on_a_host_runs_our_module(run_among_theirs: Run, module: str, text: str) -> None:
    assert run_among_theirs(*module_command(module)).stderr.strip().endswith(text)


def test_a_module_gets_its_arguments_and_gives_its_status(run_among_theirs: Run, tmp_path: Path) -> None:
    program = "import sys\nprint(__name__, *sys.argv[1:])\nsys.exit(7)\n"
    (tmp_path / "program_of_theirs.py").write_text(program)
    done = run_among_theirs(*module_command("program_of_theirs", "--some", "two words"))
    assert (done.returncode, done.stdout) == (7, "__main__ --some two words\n")


def test_modules_that_are_not_ours_are_looked_for_as_ever(run_among_theirs: Run, tmp_path: Path) -> None:
    package = tmp_path / "their_schedules"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "workloads.py").write_text("MINE = 'theirs'\n")
    script = (
        "import wanbed.own_modules, their_schedules.workloads as theirs, workloads; "
        "print(theirs.MINE, workloads.__file__)"
    )
    done = run_among_theirs(sys.executable, "-c", script)
    assert done.stdout.split() == ["theirs", str(ROOT / "workloads" / "__init__.py")], done.stderr


def test_without_pythonpath_a_process_runs_the_checkout_of_the_one_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "workloads.py").write_text(THEIRS)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        module_command("inspect", "workloads", "--details"),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert str(ROOT / "workloads" / "__init__.py") in done.stdout, done.stderr


def test_every_package_that_is_installed_is_guarded() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())
    installed = {name.rstrip("*") for name in tools["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert installed == set(OWN_PACKAGES)


def test_the_installed_command_goes_through_the_guard() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"wanbed": "wanbed.command:main"}


def test_no_module_but_pip_is_started_in_another_way() -> None:
    sources = [path for package in OWN_PACKAGES for path in (ROOT / package).rglob("*.py")]
    started = re.compile(r'sys\.executable, "-m"(?!, "pip"\))')
    assert [path for path in sources if started.search(path.read_text())] == []
