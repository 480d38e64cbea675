import json
from pathlib import Path

import pytest

from tests.support.refused import refused
from wanbed.runner.validation.agreement import DrawnResult, RandomAgreement
from wanbed.runner.validation.random_page import Explanations, RandomSection, by_trait, read_explanations

ERRORS = {3: -0.3, 4: 0.07, 5: 0.01, 6: 0.12}


def section(errors: dict[int, float] = ERRORS, causes: dict[str, str] | None = None) -> RandomSection:
    results = tuple(
        DrawnResult(number, f"random-1-{number:03d}", ("gpipe", f"trait {number}"), 10.0, 10.0 * (1 + error))
        for number, error in errors.items()
    )
    explained = dict.fromkeys(causes or {}, "a cause")
    return RandomSection(
        RandomAgreement(1, len(errors) + 1, results, {9: "it is | stuck"}),
        Explanations(causes={"a cause": "why it is so"}, experiments=explained),
    )


def test_all_beyond_5_percent_are_in_the_table_the_farthest_first() -> None:
    text = "\n".join(section().markdown())
    order = [text.index(name) for name in ("random-1-003", "random-1-006", "random-1-004")]
    assert order == sorted(order)
    assert "random-1-005" not in text
    assert "| -30.0% |" in text


def test_a_cause_is_named_beside_its_experiment_and_described_once() -> None:
    text = "\n".join(section(causes={"random-1-003": "", "random-1-004": ""}).markdown())
    assert text.count("- **a cause**: why it is so\n") == 1
    assert text.count("| a cause") == 2


def test_beyond_10_percent_without_a_cause_is_reported_as_not_explained() -> None:
    drawn = section(causes={"random-1-003": ""})
    assert [result.name for result in drawn.unexplained] == ["random-1-006"]
    assert "\n".join(drawn.markdown()).count("| not explained") == 1


def test_failed_experiments_are_reported_with_their_reason() -> None:
    assert "it is \\| stuck" in "\n".join(section().markdown())


def test_none_beyond_is_reported_too() -> None:
    assert "None is farther off than 5%." in "\n".join(section({1: 0.02}).markdown())


def test_the_verdict_names_the_worst_and_what_fails() -> None:
    verdict = section().verdict()
    assert "the worst is -30.0% off (random-1-003)" in verdict
    assert "**25.0% of the random experiments are within 5%, fewer than 95%.**" in verdict
    assert "not run" in RandomSection(RandomAgreement(1, 2, (), {}), Explanations()).verdict()


def test_the_same_results_give_the_same_text() -> None:
    assert section().markdown() == section().markdown()


def test_traits_are_sorted_by_their_median_error() -> None:
    found = by_trait(section().agreement.results)
    assert list(found) == ["trait 3", "trait 6", "gpipe", "trait 4", "trait 5"]
    assert (found["gpipe"]["experiments"], found["gpipe"]["share_within"]) == (4, 0.25)


def test_the_document_is_json() -> None:
    document = json.loads(json.dumps(section(causes={"random-1-003": ""}).document()))
    assert document["explained"] == {"random-1-003": "a cause"}
    assert (document["seed"], document["asked"], len(document["experiments"])) == (1, 5, 4)


TEXT = """
causes: {small windows: the kernel gives less of them}
experiments: {random-1-017: small windows}
"""


def test_a_cause_stands_beside_the_experiment_that_it_explains(tmp_path: Path) -> None:
    (tmp_path / "explanations.yaml").write_text(TEXT)
    found = read_explanations(tmp_path)
    assert found.experiments == {"random-1-017": "small windows"}
    assert found.causes == {"small windows": "the kernel gives less of them"}


def test_no_file_explains_nothing(tmp_path: Path) -> None:
    assert read_explanations(tmp_path) == Explanations()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "experiments: {random-1-017: bad luck}",
            "experiments.random-1-017: 'bad luck' is not among the causes (none)",
        ),
        ("cause: {}", "unknown field, did you mean 'causes'"),
        ("experiments: [1]", "experiments"),
    ],
)
def test_invalid_explanations_raise_one_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "explanations.yaml").write_text(text)
    assert words in refused(lambda: read_explanations(tmp_path))
