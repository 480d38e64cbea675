"""A pass of pytest over small test files: its record, its limit, its avoidable skips, and its second tries."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.proof import passes

ROOT = Path(__file__).resolve().parents[2]


def recorded(folder: Path, tests: str, *options: str, **environment: str) -> tuple[int, dict[str, Any]]:
    """The exit status and the record of a pass over one file."""
    conftest = "from tests.proof.skips import pytest_make_collect_report, pytest_runtest_makereport\n"
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text("import pytest\n" + dedent(tests))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = soak\n")
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(folder / "pytest.ini"), "-p", "tests.proof.record"]
    done = subprocess.run(
        [*command, "--proof-record", str(folder / "record.json"), *options, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CI": "false", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads((folder / "record.json").read_text())


SKIPS = """
    def test_avoidable():
        pytest.skip("no compiler here")

    def test_allowed():
        pytest.skip("no kernel substrate: no sch_netem")
"""


def test_a_skip_that_the_machine_could_have_avoided_fails_in_ci_only(tmp_path: Path) -> None:
    status, record = recorded(tmp_path, SKIPS, CI="true")
    assert status == 1
    assert record["failed"] == ["test_it.py::test_avoidable"]
    assert list(record["skipped"]) == ["no kernel substrate: no sch_netem"]
    status, record = recorded(tmp_path, SKIPS)
    assert (status, record["failed"], len(record["skipped"])) == (0, [], 2)


def test_a_module_that_is_skipped_avoidably_fails_in_ci(tmp_path: Path) -> None:
    status, record = recorded(tmp_path, 'pytest.skip("no compiler here", allow_module_level=True)', CI="true")
    assert status != 0
    assert record["failed"] == ["test_it.py"]


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_what_is_left_to_the_soak_is_counted_once(tmp_path: Path, workers: tuple[str, ...]) -> None:
    tests = """
        @pytest.mark.soak
        @pytest.mark.parametrize("number", range(3))
        def test_dear(number): pass

        def test_quick(): pass
    """
    status, record = recorded(tmp_path, tests, "-m", "not soak", *workers)
    assert (status, record["passed"], record["left_to_the_soak"]) == (0, 1, 3)


def test_a_test_that_begins_after_the_cut_is_named_and_fails_nothing(tmp_path: Path) -> None:
    status, record = recorded(tmp_path, "def test_late(): assert False", "--cut-off-at", str(time.time() - 1))
    assert (status, record["skipped"]) == (0, {"cut off: no time left": ["test_it.py::test_late"]})


@pytest.mark.parametrize("how", [passes.ALONE, passes.SIDE_BY_SIDE], ids=["alone", "side by side"])
def test_a_test_that_spins_ends_once_at_its_limit_and_all_others_run(tmp_path: Path, how: tuple[str, ...]) -> None:
    for number in range(6):
        (tmp_path / f"test_{number}.py").write_text("def test_one(): pass\ndef test_other(): pass\n")
    tests = """
        def test_before(): pass

        def test_spins():
            while True:
                pass

        def test_after(): pass
    """
    status, record = recorded(tmp_path, tests, *how, "--timeout", "2", "--timeout-method", "thread")
    assert (status, record["failed"], record["passed"]) == (1, ["test_it.py::test_spins"], 2 + 2 * 6)


def test_a_failed_test_has_a_second_try_only_where_a_pass_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "RECORDS", tmp_path / "records")
    file = tmp_path / "test_it.py"
    tests = """
        from pathlib import Path

        def test_disturbed_once():
            flag = Path(__file__).with_suffix(".flag")
            if flag.exists():
                flag.unlink()
            else:
                flag.touch()
            assert not flag.exists()
    """
    file.write_text(dedent(tests))
    assert passes.run_pass("measuring", passes.ALONE, "measures or not soak", [str(file)], second_try=True)
    assert not passes.run_pass("side by side", passes.ALONE, "measures or not soak", [str(file)])
    measuring, side_by_side = passes.kept_passes()
    (name,) = measuring.tried_twice
    assert (measuring.passed, measuring.failed) == (1, [])
    assert (side_by_side.tried_twice, side_by_side.failed) == ([], [name])
