from pathlib import Path

import pytest

from wanbed.ground.strict_model import InputError
from wanbed.runner.validation.random.explanations import Explanations, read_explanations

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
    with pytest.raises(InputError) as caught:
        read_explanations(tmp_path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
