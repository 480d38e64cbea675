"""What ``import wanbed`` offers, how little it loads, and that type checkers see all of it."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import wanbed

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "matplotlib",
    "mininet",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "pyroute2",
    "rich",
    "torch",
    "typer",
    "yaml",
}

PROGRAM = """
from pathlib import Path

import wanbed


class Backwards(wanbed.FixedOrder):
    def order(self, stage: int) -> list[wanbed.Action]:
        kind = wanbed.ActionKind.FORWARD
        return [wanbed.Action(kind, microbatch) for microbatch in range(self.shape.microbatches)]


experiment = wanbed.Experiment(
    topology={"datacenters": [{"name": "east", "hosts": 1}], "wan": {"latency": "10ms"}},
    variants=[{"name": "mine", "schedule": Backwards}],
    sweep={"topology.wan.latency": ["10ms", "40ms"]},
)
run: wanbed.Run = wanbed.simulate(experiment, runs=Path("runs"), jobs=2)
slowest: float = run.summary["iteration_time_s"].max()
comparison: wanbed.Comparison = wanbed.compare(run, "runs/other", margin="5%")
ratios: list[float | None] = [judgement.ratio for judgement in comparison.judgements]
places: list[tuple[str, ...]] = [plan.placement for plan in wanbed.plan(experiment.with_values({"repeats": 1}))]
try:
    wanbed.load("runs/other")
except wanbed.RunError as error:
    print(error)
"""


WRONG = """import wanbed
experiment = wanbed.Experiment(topology={}, trainig={})
wanbed.simulate(experiment, jobs="2")
wanbed.simulat(experiment)
"""


def in_new_process(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_importing_it_loads_nothing_else() -> None:
    assert HEAVY.isdisjoint(in_new_process("import sys, wanbed; print(*sys.modules)").split())


def test_a_schedule_needs_neither_pydantic_nor_pandas() -> None:
    """So a rank that imports such a schedule starts as fast as with any other."""
    script = "import sys; from wanbed import Action, ActionKind, FixedOrder, Schedule; print(*sys.modules)"
    assert HEAVY.isdisjoint(in_new_process(script).split())


def test_simulating_and_loading_load_neither_torch_nor_matplotlib() -> None:
    script = "import sys, wanbed; wanbed.simulate, wanbed.load, wanbed.compare, wanbed.plan; print(*sys.modules)"
    assert {"matplotlib", "torch", "typer", "mininet"}.isdisjoint(in_new_process(script).split())


@pytest.mark.parametrize("name", wanbed.__all__)
def test_every_name_is_there_and_documented(name: str) -> None:
    assert getattr(wanbed, name).__doc__


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'wanbed' has no attribute 'simulat'"):
        _ = wanbed.simulat  # type: ignore[attr-defined]


def test_type_checkers_import_each_name_from_where_it_is() -> None:
    tree = ast.parse(Path(wanbed.__file__).read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    imported = {
        alias.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == wanbed._MODULE_OF
    assert sorted(imported) == wanbed.__all__ == dir(wanbed)


@pytest.fixture(scope="module")
def found_by_mypy(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The errors of a strict check of both programs, without those within wanbed, as of an installed package.

    With the settings of ``make lint`` it finds what that has checked, which saves most of its time.
    """
    folder = tmp_path_factory.mktemp("typed")
    (folder / "right.py").write_text(PROGRAM, encoding="utf-8")
    (folder / "wrong.py").write_text(WRONG, encoding="utf-8")
    settings = [f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={ROOT / '.mypy_cache'}"]
    command = [sys.executable, "-m", "mypy", "--strict", *settings, "right.py", "wrong.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("checked 2 source files)\n"), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if re.match(r"(right|wrong)\.py:.*: error: ", line)]


def test_a_users_typed_program_passes_a_strict_check(found_by_mypy: list[str]) -> None:
    assert [line for line in found_by_mypy if line.startswith("right.py")] == []


def test_a_strict_check_finds_wrong_fields_arguments_and_names(found_by_mypy: list[str]) -> None:
    assert [line.partition(": error")[0] for line in found_by_mypy] == ["wrong.py:2", "wrong.py:3", "wrong.py:4"]


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "wanbed" / "py.typed").is_file()
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert tools["setuptools"]["package-data"]["wanbed"] == ["py.typed"]
