import subprocess
from pathlib import Path

import pytest

from tests.mutants.__main__ import modules_of, outcomes, report
from tests.mutants.faults import faults_in
from tests.mutants.trials import Outcome, Planted, drawn

TREE = {
    "core/share.py": "def share(rate, count):\n    return rate // count\n",
    "core/wait.py": "def waited(ticks):\n    while ticks:\n        ticks -= 1\n    return ticks\n",
    "core/untested.py": "LIMIT = 7\n",
    "core/part.py": "FIRST = True\n",
    "tests/test_core.py": "from house.core.part import FIRST\ndef test_first():\n    assert FIRST\n",
    "tests/core/test_share.py": "from house.core.share import share\ndef test_parts():\n    assert share(8, 2) == 4\n",
    "tests/core/test_wait.py": "from house.core.wait import waited\ndef test_it_ends():\n    assert waited(3) == 0\n",
    ".gitignore": "/build/\n",
}
PLUGIN = Path(__file__).with_name("first_failure.py")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    plugin = PLUGIN.read_text(encoding="utf-8").replace("MOST_PROCESSOR_S = 15", "MOST_PROCESSOR_S = 0.3")
    for name, text in (TREE | {"tests/mutants/first_failure.py": plugin}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "core").symlink_to("../core")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def fault(root: Path, module: str, text: str) -> Planted:
    source = (root / module).read_text(encoding="utf-8")
    return Planted(Path(module), source, next(each for each in faults_in(source) if each.text == text))


def test_faults_are_noticed_spin_or_survive_and_the_tree_stays_as_it_was(root: Path) -> None:
    expected = {
        fault(root, "core/share.py", "*"): Outcome.CAUGHT,
        fault(root, "core/wait.py", "pass"): Outcome.ENDLESS,
        fault(root, "core/part.py", "False"): Outcome.NEAR,
        fault(root, "core/untested.py", "6"): Outcome.SURVIVED,
    }
    judged = outcomes(root, list(expected))
    assert judged == expected
    assert {name: (root / name).read_text(encoding="utf-8") for name in TREE} == TREE
    assert not list((root / "build").iterdir())
    lines = report(["core"], judged)
    assert lines[1].split("  ")[-5:] == ["caught", "one folder above", "without end", "survived", "noticed"]
    assert lines[2].split() == ["core", "4", "1", "1", "1", "1", "75%"]
    assert lines[-3:] == ["survived: core/untested.py:1", "  - LIMIT = 7", "  + LIMIT = 6"]


def test_tests_that_fail_without_a_fault_judge_none(root: Path) -> None:
    (root / "tests/core/test_share.py").write_text("def test_parts():\n    assert False\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="mutants: tests/core: these tests have to pass without a fault first"):
        outcomes(root, [fault(root, "core/share.py", "*")])


def test_the_time_after_the_last_test_is_not_of_a_test(root: Path) -> None:
    (root / "tests/conftest.py").write_text(
        "import time\n"
        "def pytest_unconfigure():\n"
        "    begin = time.process_time()\n"
        "    while time.process_time() < begin + 0.6:\n"
        "        pass\n",
        encoding="utf-8",
    )
    planted = fault(root, "core/untested.py", "6")
    assert outcomes(root, [planted]) == {planted: Outcome.SURVIVED}


def test_a_seed_draws_the_same_faults_and_no_two_of_a_line(root: Path) -> None:
    modules = modules_of("core", root)
    faults = drawn(root, modules, 100, 5)
    assert drawn(root, modules, 100, 5) == faults != drawn(root, modules, 100, 6)
    places = [(each.module, each.fault.line) for each in faults]
    assert len(set(places)) == len(places) == 5
    assert drawn(root, modules, 2, 5) == faults[:2]


def test_a_name_that_is_nowhere_is_reported(root: Path) -> None:
    with pytest.raises(SystemExit, match="mutants: cor: no such file or folder"):
        modules_of("cor", root)
