import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.refused import refused
from tests.support.runner.emulated_run import EXPERIMENT, constant, write_run
from wanbed.results import load
from wanbed.results.reading.run import Run
from wanbed.runner.validation.agreement import Agreement, Compared, DrawnResult, RandomAgreement
from wanbed.runner.validation.case import LawCheck
from wanbed.runner.validation.comparison import SATURATED, VariantComparison, compare
from wanbed.runner.validation.page import Explanations, RandomSection, by_trait, document, page, read_explanations
from wanbed.runner.validation.validation import Validation

EXACT = LawCheck("GPipe, S = 2", "the law", (850_000_000,), (850_000_000,))

SEVERAL = LawCheck("first activations", "k A / (C W)", (100_000_000, 200_000_000), (100_000_000, 200_000_000))

TIMES = {(0, "gpipe"): [2.0, 2.1, 1.9], (1, "1f1b"): [2.02]}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return load(write_run(tmp_path, TIMES))


@pytest.fixture
def validation(run: Run) -> Validation:
    return Validation((EXACT,), (SEVERAL,), compare(run, constant(2.0)))


def points(text: str, first: str) -> list[str]:
    """The cells of the only table row that begins so."""
    (row,) = re.findall(rf"^\| {re.escape(first)}.*\|$", text, flags=re.MULTILINE)
    return [point.strip() for point in row.strip("|").split(" | ")]


def test_a_page_without_a_run_has_the_exact_values_and_says_that_nothing_was_compared() -> None:
    text = page(Validation((EXACT,), (SEVERAL,), ()), None, None)
    assert "**It agrees.** 2 of 2 golden values and closed forms are exact." in text
    assert points(text, "GPipe, S = 2") == ["GPipe, S = 2", "the law", "850ms", "exact"]
    assert points(text, "first activations") == ["first activations", "k A / (C W)", "100ms, 200ms", "exact"]
    assert "no emulated run was given" in text
    assert "`wanbed validate`" in text


def test_a_value_that_is_not_exact_shows_what_came_out_and_heads_the_page() -> None:
    text = page(Validation((replace(EXACT, simulated_ns=(850_000_001,)),), (SEVERAL,), ()), None, None)
    assert "**It does not agree.** 1 of 1 golden values are not exact." in text
    assert points(text, "GPipe, S = 2")[-1] == "**850000001ns**"


def test_times_that_are_all_the_same_are_reported_once() -> None:
    text = page(Validation((replace(EXACT, expected_ns=(5, 5), simulated_ns=(5, 5)),), (), ()), None, None)
    assert points(text, "GPipe, S = 2")[2] == "5ns each"


def test_every_comparison_is_a_row(validation: Validation, run: Run) -> None:
    text = page(validation, run, "validation.png")
    assert points(text, "WAN latency 10ms") == [
        "WAN latency 10ms", "gpipe", "2.000 s", "1.900 s to 2.100 s", "2.000 s", "+0.0%",
    ]  # fmt: skip
    assert points(text, "WAN latency 40ms") == [
        "WAN latency 40ms", "1f1b", "2.020 s", "1 repeat", "2.000 s", "-1.0%",
    ]  # fmt: skip
    assert "median error is 0.5% and its worst -1.0% (1f1b at WAN latency 40ms)" in text
    assert "![Simulated against emulated iteration time, and the error of each](validation.png)" in text
    assert "**It agrees.**" in text


def test_an_error_beyond_the_limit_stands_out(run: Run) -> None:
    text = page(Validation((EXACT,), (SEVERAL,), compare(run, constant(2.2))), run, None)
    assert "**It does not agree.** 2 of 2 simulated iteration times are more than 5% off" in text
    assert points(text, "WAN latency 10ms")[-1] == "**+10.0%**"


def test_the_page_says_what_was_emulated_and_names_no_place_of_the_machine(
    validation: Validation, run: Run, tmp_path: Path
) -> None:
    text = page(validation, run, "validation.png")
    kernel = run.manifest["host"]["kernel"]
    for fact in (run.path.name, run.manifest["created"], "wanbed 0.1.0", f"Linux {kernel}", "4 trials"):
        assert fact in text
    assert str(tmp_path) not in text
    assert str(tmp_path.parent.name) not in text


def test_code_that_was_not_committed_is_reported(validation: Validation, tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "dirty", TIMES, manifest={"git": {"revision": "c0ffee", "dirty": True}}))
    assert "wanbed 0.1.0 at revision c0ffee with uncommitted changes," in page(validation, run, None)


def test_a_sweep_point_whose_machine_was_saturated_is_marked(tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "busy", TIMES, facts={"machine_load": {"saturated": 0.5}}))
    text = page(Validation((EXACT,), (), compare(run, constant(2.0))), run, None)
    assert points(text, "WAN latency 10ms")[-1] == SATURATED
    assert "Read with care:\n\n- In 4 of 4 trials the machine was overloaded" in text


def test_a_sweep_point_with_links_outside_tolerance_is_marked(tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "off", TIMES, within_tolerance=False))
    text = page(Validation((EXACT,), (), compare(run, constant(2.0))), run, None)
    assert points(text, "WAN latency 40ms")[-1] == "links outside tolerance"
    assert "- Calibration found links outside tolerance at WAN latency 10ms and WAN latency 40ms" in text


def test_a_name_cannot_break_the_table(tmp_path: Path) -> None:
    name = "a|b *c* <d> `e`"
    experiment = {**EXPERIMENT, "sweep": {}, "variants": [{"name": name, "schedule": "gpipe"}]}
    run = load(write_run(tmp_path / "odd", {(0, name): [2.0]}, experiment=experiment))
    text = page(Validation((EXACT,), (), compare(run, constant(2.0))), run, None)
    assert points(text, r"a\|b")[0] == r"a\|b \*c\* \<d\> \`e\`"


def test_the_same_validation_gives_the_same_page(validation: Validation, run: Run) -> None:
    again = Validation((EXACT,), (SEVERAL,), compare(load(run.path), constant(2.0)))
    assert page(validation, run, "v.png") == page(again, load(run.path), "v.png")


def test_the_columns_of_a_table_stand_one_below_the_other(validation: Validation, run: Run) -> None:
    tables = [block.split("\n") for block in page(validation, run, None).split("\n\n") if block.startswith("|")]
    assert len(tables) == 3
    for lines in tables:
        bars = [[position for position, sign in enumerate(line) if sign == "|"] for line in lines if line]
        assert all(found == bars[0] for found in bars)


def test_the_document_is_plain_json_with_every_figure(validation: Validation) -> None:
    written = json.loads(json.dumps(document(validation), allow_nan=False))
    assert written["agrees"] is True
    assert written["golden"] == [
        {"case": "GPipe, S = 2", "law": "the law", "expected_ns": [850_000_000], "simulated_ns": [850_000_000],
         "exact": True}
    ]  # fmt: skip
    assert written["comparisons"][0]["swept"] == {"topology.wan.latency": "10ms"}
    assert written["comparisons"][0]["simulated_s"] == 2.0
    assert written["median_error"] == pytest.approx(0.00495, abs=1e-5)


def test_without_a_run_the_document_has_no_errors() -> None:
    written = document(Validation((EXACT,), (), ()))
    assert (written["comparisons"], written["median_error"], written["worst_error"]) == ([], None, None)


AGREEMENT = Agreement(
    (
        Compared(
            "headline-gpt-a",
            "headline-gpt-a-1",
            (
                VariantComparison(0, {"topology.wan.latency": "40ms"}, "gpipe", 1, 30.0, 30.0, 30.0, 30.3),
                VariantComparison(
                    0, {"topology.wan.latency": "40ms"}, "varuna, bbr", 1, 3.0, 3.0, 3.0, 3.3, ("careful",)
                ),
            ),
        ),
    )
)


def test_virtual_time_has_a_section_with_every_sweep_point_and_a_line_at_the_top(
    validation: Validation, run: Run
) -> None:
    text = page(validation, run, None, AGREEMENT)
    assert points(text, "headline-gpt-a | WAN latency 40ms | gpipe")[3:] == ["30.000 s", "30.300 s", "+1.0%", ""]
    assert points(text, "headline-gpt-a | WAN latency 40ms | varuna, bbr")[5:] == ["**+10.0%**", "careful"]
    head = text[: text.index("## Golden values")]
    assert "Over 2 iteration times in virtual time the median error is 5.5% and the worst +10.0%" in head
    assert "**1 of 2 simulated iteration times are more than 5% off those in virtual time.**" in head


def test_the_document_has_the_errors_against_virtual_time(validation: Validation) -> None:
    text = document(validation, AGREEMENT)["virtual_time"]
    assert (text["compared"], text["worst_error"]) == (2, pytest.approx(0.1))
    assert document(validation)["virtual_time"] is None


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
