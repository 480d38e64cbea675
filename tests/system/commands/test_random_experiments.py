"""The first experiment of the seed whose results are published, in virtual time and simulated.

No test here minds what else the machine does: virtual time does not.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.wanbed_command import printed
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.runner.cli.validate_random import DEFAULT_SEED
from wanbed.runner.validation.agreement import AGREEMENT_FILE, EXPLAINED_LIMIT
from wanbed.runner.validation.page import read_explanations

ROOT = Path(__file__).resolve().parents[3]
PUBLISHED = ROOT / "results" / "reference" / "random"
FEW = 1

REPEATED_WITHIN = 0.001
"""The same experiment in virtual time again, as docs/virtual-time.md promises."""

# Virtual time beside its simulation has quick witnesses: two jobs, a star, local updates.
pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    kernel_or_skip()
    drawn = ("--random", FEW, "--seed", DEFAULT_SEED, "--runs", tmp_path_factory.mktemp("runs"))
    document: dict[str, Any] = printed("validate", *drawn, status={0, 1}, timeout_s=1800, cwd=ROOT)["random"]
    return document


def test_every_experiment_comes_to_its_end(found: dict[str, Any]) -> None:
    assert [each["number"] for each in found["experiments"]] == list(range(FEW))
    assert found["failed"] == {}


def test_both_engines_give_the_published_figures(found: dict[str, Any]) -> None:
    published = json.loads((PUBLISHED / AGREEMENT_FILE).read_text(encoding="utf-8"))["experiments"]
    for own, known in zip(found["experiments"], published, strict=False):
        assert own["name"] == known["name"]
        assert own["virtual_s"] == pytest.approx(known["virtual_s"], rel=REPEATED_WITHIN)
        assert own["simulated_s"] == known["simulated_s"]


def test_what_is_far_off_is_explained_by_name(found: dict[str, Any]) -> None:
    explained = read_explanations(PUBLISHED).experiments
    far = {each["name"]: each["error"] for each in found["experiments"] if abs(each["error"]) > EXPLAINED_LIMIT}
    assert {name: error for name, error in far.items() if name not in explained} == {}
