"""The files by which a fresh machine gets to ``make demo``."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


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
    wanted += project["optional-dependencies"]["torch"] + project["optional-dependencies"]["gpu"]
    assert {name.lower() for name in wanted} <= pinned


def test_the_virtual_machine_uses_the_same_set_up_script() -> None:
    assert "./setup.sh demo" in (ROOT / "Vagrantfile").read_text()
    assert "./setup.sh demo" in (ROOT / "Makefile").read_text()


def test_the_set_up_script_refuses_a_purpose_it_does_not_know() -> None:
    done = subprocess.run([ROOT / "setup.sh", "everything"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "demo|test" in done.stderr
