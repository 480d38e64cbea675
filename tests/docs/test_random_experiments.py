"""What docs/validation.md says of random experiments is what was found, and nothing far off is left unexplained."""

from pathlib import Path

import pytest

from wanbed.runner.validation.agreement import EXPLAINED_LIMIT, RandomAgreement, read_random_agreement
from wanbed.runner.validation.page import RandomSection, read_explanations
from wanbed.runner.validation.random_experiments import draw_experiment, write_experiments

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "results" / "reference" / "random"


@pytest.fixture(scope="module")
def agreement() -> RandomAgreement:
    return read_random_agreement(PUBLISHED)


def test_every_one_beyond_10_percent_is_explained_by_name(agreement: RandomAgreement) -> None:
    section = RandomSection(agreement, read_explanations(PUBLISHED))
    assert [(each.name, f"{each.error:+.1%}") for each in section.unexplained] == []


def test_nothing_is_explained_that_agrees(agreement: RandomAgreement) -> None:
    explained = read_explanations(PUBLISHED).experiments
    near = {each.name for each in agreement.results if abs(each.error) <= EXPLAINED_LIMIT / 2}
    assert near & set(explained) == set()


def test_every_cause_explains_something() -> None:
    explanations = read_explanations(PUBLISHED)
    assert set(explanations.causes) == set(explanations.experiments.values())


def test_the_page_has_the_section_that_these_results_give(agreement: RandomAgreement) -> None:
    page = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    assert "\n".join(RandomSection(agreement, read_explanations(PUBLISHED)).markdown()) in page


def test_the_files_beside_them_are_those_that_are_drawn(agreement: RandomAgreement, tmp_path: Path) -> None:
    files = sorted((PUBLISHED / "experiments").glob("*.yaml"))
    drawn = {each.file.name: each.file for each in write_experiments(agreement.seed, agreement.asked, tmp_path)}
    assert [file.name for file in files] == sorted(f"{each.name}.yaml" for each in agreement.beyond(0.05))
    assert all(file.read_bytes() == drawn[file.name].read_bytes() for file in files)
    assert all(each.name == draw_experiment(agreement.seed, each.number)["name"] for each in agreement.results)
