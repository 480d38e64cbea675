"""The output, files and exit status of ``wanbed compare``."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.results.runs import flat, write_run
from tests.support.runner.commands_here import called, printed, refusal, wanbed
from wanbed.results.reading.run import load_run

STOCK = {("10ms", "stock"): flat(1.0), ("40ms", "stock"): flat(2.0)}

SLOWER = {("10ms", "stock"): flat(1.0), ("40ms", "stock"): flat(2.1)}


def compare(*arguments: str | Path) -> Any:
    return wanbed("compare", *arguments)


def test_the_exit_status_is_the_verdict(tmp_path: Path) -> None:
    a, again, slower = (write_run(tmp_path, times) for times in (STOCK, STOCK, SLOWER))
    elsewhere = write_run(tmp_path, STOCK, seed=1)
    lone = write_run(tmp_path, {key: [[1.0]] for key in STOCK})
    pairs = {"same": (a, again), "improved": (slower, a), "regressed": (a, slower)}
    pairs |= {"not comparable": (a, elsewhere), "no data": (a, lone)}
    assert {word: compare(*runs).exit_code for word, runs in pairs.items()} == {
        "same": 0,
        "improved": 0,
        "regressed": 1,
        "not comparable": 3,
        "no data": 4,
    }


def test_the_table_and_the_verdict_are_for_people(tmp_path: Path) -> None:
    text = compare(write_run(tmp_path, STOCK), write_run(tmp_path, SLOWER)).stdout
    assert all(words in text for words in ("WAN latency 40ms", "1.050 to 1.050"))
    assert text.splitlines()[-1] == "REGRESSED: 1 of 2 pairs"


def test_a_larger_margin_lets_it_pass(tmp_path: Path) -> None:
    called("compare", write_run(tmp_path, STOCK), write_run(tmp_path, SLOWER), "--margin", "6%")


def test_what_cannot_be_compared_is_reported_field_by_field_and_can_be_allowed(tmp_path: Path) -> None:
    a, b = write_run(tmp_path, STOCK), write_run(tmp_path, STOCK, seed=1, dilation=2.0, within_tolerance=False)
    fields = [each["field"] for each in printed("compare", a, b, status=3)["differences"]]
    assert fields == ["dilation", "seed", "calibration"]
    assert "calibration: wanbed calibrate FILE shows" in compare(a, b).stdout
    called("compare", a, b, *(word for field in fields for word in ("--allow", field)))


def test_names_are_printed_without_markup_or_control_characters(tmp_path: Path) -> None:
    hostile = "[red]x[/red] \x1b[2J <b>"
    a, b = (write_run(tmp_path, {("10ms", hostile): flat(1.0)}, host={"cpu": f"\x1b[2J{k}"}) for k in "ab")
    text = called("compare", a, b).stdout
    assert "[red]x[/red]" in text
    assert "\x1b" not in text


def test_two_variants_of_one_run_are_compared(tmp_path: Path) -> None:
    run = write_run(tmp_path, {("10ms", "stock"): flat(1.0), ("10ms", "a=b"): flat(1.2)})
    assert [compare(run, run, "--pair", pair).exit_code for pair in ("stock=a=b", "a=b=stock")] == [1, 0]


def test_the_document_is_alone_on_standard_output(tmp_path: Path) -> None:
    done = compare(write_run(tmp_path, STOCK), write_run(tmp_path, SLOWER), "--json")
    document = json.loads(done.stdout)
    assert document["verdict"] == "regressed"
    assert [point["verdict"] for point in document["sweep_points"]] == ["same", "regressed"]
    assert "REGRESSED" in done.stderr


def test_a_summary_for_ci_is_written_whatever_the_verdict(tmp_path: Path) -> None:
    a, slower, elsewhere = write_run(tmp_path, STOCK), write_run(tmp_path, SLOWER), write_run(tmp_path, STOCK, seed=1)
    summary = tmp_path / "summary.md"
    for b, word in ((slower, "REGRESSED"), (elsewhere, "not comparable")):
        compare(a, b, "--markdown", summary)
        assert word in summary.read_text(encoding="utf-8")
    done = compare(a, slower, "--markdown", "-")
    assert done.stdout.startswith("### wanbed compare")
    assert "REGRESSED: 1 of 2 pairs" in done.stderr


def test_an_unclear_pair_is_printed_loudly(tmp_path: Path) -> None:
    noisy = {("10ms", "stock"): [[1.0], [1.05], [0.95], [1.02], [0.98]]}
    text = called("compare", write_run(tmp_path, noisy), write_run(tmp_path, noisy)).stdout
    assert all(words in text for words in ("UNCLEAR WAN latency 10ms, stock", "repeats might settle it"))


def test_the_noise_of_a_simulation_is_nothing_and_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = (write_run(tmp_path / "made", STOCK, engine="simulate") for _ in range(2))
    done = called("compare", a, b, "--noise", "3", "--json")
    assert json.loads(done.stdout)["noise_floor"] == 0
    assert "0 by construction" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_the_noise_of_virtual_time_is_not_measured_on_another_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = (write_run(tmp_path / "made", STOCK, clock="virtual") for _ in range(2))
    assert "A ran in virtual time" in refusal("compare", a, b, "--noise", "5")


def noise_is(monkeypatch: pytest.MonkeyPatch, run: Path) -> None:
    """Let the noise be what the iterations of ``run`` show."""
    again = load_run(run)
    monkeypatch.setattr("wanbed.runner.emulation.noise_floor.noise_experiment", lambda *_: None)
    monkeypatch.setattr("wanbed.runner.emulation.noise_floor.run_again", lambda *_: again)


def test_the_measured_noise_raises_the_margin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise_is(
        monkeypatch, write_run(tmp_path / "noise", {key: [[s] for s in (1.0, 1.1, 0.9, 1.2, 0.8)] for key in STOCK})
    )
    document = printed("compare", write_run(tmp_path, STOCK), write_run(tmp_path, SLOWER), "--noise", "5")
    assert document["verdict"] == "same"
    assert all(point["margin"] == point["noise_floor"] > 0.05 for point in document["sweep_points"])


def test_noise_measured_elsewhere_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise_is(monkeypatch, write_run(tmp_path / "noise", STOCK, within_tolerance=False))
    a, slower = write_run(tmp_path, STOCK), write_run(tmp_path, SLOWER)
    assert "differs from A in calibration" in called("compare", a, slower, "--noise", "5", status=3).stderr
    assert compare(a, slower, "--noise", "5", "--allow", "calibration").exit_code == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--pair", "x=stock"], "no variant 'x'"),
        (["--pair", "stock"], "an equals sign"),
        (["--allow", "sed"], "did you mean 'seed'"),
        (["--noise", "2"], "give 3 or more"),
        (["--markdown", "-", "--json"], "give a file"),
        (["--margin", "6"], "--margin 6: a percentage has its sign, write 6%"),
        (["--margin", "1e-300%"], "--margin 1e-300%: an exponent is not read"),
        (["--margin", "six"], "--margin: 'six' is not a percentage"),
    ],
)
def test_bad_options_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in refusal("compare", write_run(tmp_path, STOCK), write_run(tmp_path, STOCK), *options)


def test_two_runs_are_given_that_exist_and_differ(tmp_path: Path) -> None:
    run = write_run(tmp_path, STOCK)
    assert "not a run's folder" in refusal("compare", run, tmp_path / "nothing")
    assert "given twice" in refusal("compare", run, run)


def test_a_summary_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    a, b = write_run(tmp_path, STOCK), write_run(tmp_path, STOCK)
    assert "give another file" in called("compare", a, b, "--markdown", tmp_path / "none/s.md", status=2).stderr
