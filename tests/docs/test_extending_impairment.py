import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks, copied_sources

DIFFS = blocks(DOCS / "extending.md", "diff", "An impairment of links")


@pytest.fixture
def extended(tmp_path: Path) -> Path:
    """A copy of the sources with the page's changes in it."""
    copied_sources(tmp_path)
    for diff in DIFFS:
        subprocess.run(["git", "apply", "--recount"], cwd=tmp_path, input=diff, text=True, check=True)
    return tmp_path


def test_the_page_adds_an_impairment_in_three_files() -> None:
    changed = [line.removeprefix("+++ b/") for diff in DIFFS for line in diff.splitlines() if line.startswith("+++ b/")]
    assert len(changed) == len(set(changed)) == 3


def test_the_page_s_impairment_goes_from_the_experiment_file_to_the_report(extended: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--noconftest", "--import-mode=importlib", "-c", os.devnull),
            *(
                "-p",
                "no:cacheprovider",
                f"--rootdir={extended}",
                str(DOCS.parent / "tests/docs/reordering_as_shown.py"),
            ),
        ],
        cwd=extended,
        env={**os.environ, "PYTHONPATH": str(extended)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
