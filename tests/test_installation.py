"""The files by which a fresh machine gets to ``make demo``, and the wheel that needs none of them."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from wanbed.module_process import PACKAGE
from wanbed.runner.experiments.shipped_experiments import shipped_experiments

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "runner" / "experiments" / "programs"


def test_vagrant_accepts_the_vagrantfile(tmp_path: Path) -> None:
    if shutil.which("vagrant") is None:
        pytest.skip("vagrant is not installed; .ci/run installs it")
    home = {**os.environ, "VAGRANT_HOME": str(tmp_path)}
    done = subprocess.run(
        ["vagrant", "validate", "--ignore-provider"], cwd=ROOT, env=home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().split()}
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    for extra in ("torch", "gpu", "rack"):
        wanted += project["optional-dependencies"][extra]
    assert {re.split("[;>]", name)[0].lower() for name in wanted} <= pinned


def test_the_virtual_machine_uses_the_same_set_up_script() -> None:
    assert "./setup.sh demo" in (ROOT / "Vagrantfile").read_text()
    assert "./setup.sh demo" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("target", ["compiled", "virtual", "foretold", "paper"])
def test_make_runs_what_it_sets_up_and_no_tool_of_the_same_name(target: str) -> None:
    """Make has variables of its own, such as AS, the assembler."""
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True)
    programs = {line.split()[0] for line in done.stdout.splitlines() if ".venv/bin/" in line}
    assert programs <= {".venv/bin/python", ".venv/bin/wanbed", "sudo"}
    assert programs


def test_the_set_up_script_refuses_a_purpose_it_does_not_know() -> None:
    done = subprocess.run([ROOT / "setup.sh", "everything"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "demo|test" in done.stderr


def test_the_set_up_script_names_the_programs_that_are_shipped() -> None:
    done = subprocess.run([ROOT / "setup.sh", "program", "dpp"], capture_output=True, text=True, check=False)
    names = " ".join(each.name for each in shipped_experiments() if each.of_a_program)
    assert (done.returncode, done.stderr) == (
        2,
        f"setup.sh: program dpp: no shipped program has this name; there are: {names}\n",
    )


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.txt")), ids=lambda path: path.stem)
def test_what_a_program_needs_has_the_versions_of_everything_else(path: Path) -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    needed = dict(line.split("==") for line in path.read_text().split())
    assert "torch" not in needed
    assert {name: version for name, version in needed.items() if pinned.get(name, version) != version} == {}


def test_programs_that_need_the_same_package_need_the_same_version() -> None:
    lines = {line for path in PROGRAMS.glob("*.txt") for line in path.read_text().split()}
    names = [line.partition("==")[0] for line in lines]
    assert len(set(names)) == len(names)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a wheel of this checkout is unpacked in."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / PACKAGE, source / PACKAGE, ignore=shutil.ignore_patterns("__pycache__", "reference"))
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, source)
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", source, source]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True)
    (wheel,) = source.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    return site


@pytest.fixture
def wanbed(installed: Path, tmp_path: Path) -> Callable[..., str]:
    """Runs the wheel's command in an empty folder, and returns its standard output."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "wanbed", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_a_wheel_brings_one_importable_name(installed: Path) -> None:
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info"} == {PACKAGE}


def test_a_wheel_has_every_shipped_experiment(installed: Path, wanbed: Callable[..., str]) -> None:
    listed, folder = json.loads(wanbed("examples", "--json"))["examples"], installed / PACKAGE
    files = {Path(each["file"]).relative_to(folder) for each in listed}
    assert files == {path.relative_to(ROOT) for path in (ROOT / "runner" / "experiments").rglob("*.yaml")}
    programs = {path.relative_to(folder) for path in (folder / PROGRAMS.relative_to(ROOT)).iterdir()}
    assert programs == {path.relative_to(ROOT) for path in PROGRAMS.iterdir() if path.is_file()}


def test_a_wheel_has_the_hook_for_a_users_python(installed: Path) -> None:
    here, there = (folder / "workloads" / "user_programs" / "hook" for folder in (ROOT, installed / PACKAGE))
    assert {file.relative_to(here) for file in here.rglob("*.py")} == {
        file.relative_to(there) for file in there.rglob("*.py")
    }
    assert (there / "sitecustomize.py").is_file()


def test_a_wheel_simulates_a_shipped_experiment_by_name(tmp_path: Path, wanbed: Callable[..., str]) -> None:
    (row,) = json.loads(wanbed("simulate", "first", "--json"))["summary"]
    assert row["variant"] == "gpipe"
    assert [path.parent.parent for path in tmp_path.glob("runs/*/report.html")] == [tmp_path / "runs"]


@pytest.mark.parametrize(
    "name", ["fig5-tcp-bandwidth", *(pytest.param(each, marks=pytest.mark.soak) for each in ("bubbletea", "reference"))]
)
def test_a_copy_of_a_shipped_experiment_lists_the_same_trials(
    tmp_path: Path, wanbed: Callable[..., str], name: str
) -> None:
    assert wanbed("examples", name) == f"{name}.yaml\n"
    assert wanbed("simulate", f"{name}.yaml", "--dry-run") == wanbed("simulate", name, "--dry-run")
