"""A module of wanbed runs as a process of its own, and nobody else's files are taken for it."""

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

from tests.test_import_directions import LINKED
from wanbed.module_process import module_command

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
    """Runs a command in a folder with modules named as our folders; PYTHONPATH has it before this checkout."""
    for name in LINKED:
        (tmp_path / f"{name}.py").write_text(THEIRS)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "__init__.py").write_text(THEIRS)

    def run(*command: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    return run


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
        ("wanbed.workloads.rank", "wanbed rank: usage: python -m wanbed.workloads.rank CONFIG.json"),
        ("wanbed.workloads.serving.pool_process", "usage: python -m wanbed.workloads.serving.pool_process CONFIG.json"),
    ],
)
def test_a_process_on_a_host_runs_our_module(run_among_theirs: Run, module: str, text: str) -> None:
    assert run_among_theirs(*module_command(module)).stderr.strip().endswith(text)


def test_a_users_own_module_named_as_one_of_our_folders_is_the_users(run_among_theirs: Run) -> None:
    done = run_among_theirs(sys.executable, "-c", "import wanbed, results")
    assert "a module of somebody else was imported" in done.stderr


def test_a_module_gets_its_arguments_and_gives_its_status(run_among_theirs: Run, tmp_path: Path) -> None:
    program = "import sys\nprint(__name__, *sys.argv[1:])\nsys.exit(7)\n"
    (tmp_path / "program_of_theirs.py").write_text(program)
    done = run_among_theirs(*module_command("program_of_theirs", "--some", "two words"))
    assert (done.returncode, done.stdout) == (7, "__main__ --some two words\n")


def test_a_process_runs_the_wanbed_of_the_one_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "wanbed").mkdir()
    (tmp_path / "wanbed" / "__init__.py").write_text(THEIRS)
    (tmp_path / "where.py").write_text("import wanbed.workloads.rank as rank\nprint(rank.__file__)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        module_command("where"), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == str(ROOT / "wanbed" / "workloads" / "rank.py"), done.stderr


def test_nothing_but_wanbed_is_installed() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert tools["tool"]["setuptools"]["packages"]["find"]["include"] == ["wanbed*"]


def test_no_module_but_pip_is_started_in_another_way() -> None:
    sources = [path for folder in (*LINKED, "wanbed") for path in (ROOT / folder).rglob("*.py")]
    started = re.compile(r'sys\.executable, "-m"(?!, "pip"\))')
    assert [path for path in sources if started.search(path.read_text())] == []
