"""The output, files and exit status of ``wanbed compare``."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.results.runs import flat, write_run
from tests.support.runner.commands_here import refusal, wanbed
from wanbed.results.reading.run import load_run

STOCK = {("10ms", "stock"): flat(1.0), ("40ms", "stock"): flat(2.0)}

SLOWER = {("10ms", "stock"): flat(1.0), ("40ms", "stock"): flat(2.1)}


def compare(*arguments: str | Path) -> Any:
    return wanbed("compare", *arguments)


def test_the_exit_status_is_the_verdict(tmp_path: Path) -> None:
    a, again, slower = (write_run(tmp_path, times) for times in (STOCK, STOCK, SLOWER))
    elsewhere = write_run(tmp_path, STOCK, seed=1)
    lone = write_run(tmp_path, {key: [[1.0]] for key in STOCK})
    assert compare(a, again).exit_code == 0
    assert compare(slower, a).exit_code == 0, "improved"
    assert compare(a, slower).exit_code == 1
    assert compare(a, elsewhere).exit_code == 3
    assert compare(a, lone).exit_code == 4


def test_the_table_and_the_verdict_are_for_people(tmp_path: Path) -> None:
    done = compare(write_run(tmp_path, STOCK), write_run(tmp_path, SLOWER))
    assert "WAN latency 40ms" in done.stdout
    assert "1.050 to 1.050" in done.stdout
    assert done.stdout.splitlines()[-1] == "REGRESSED: 1 of 2 pairs"


def test_a_larger_margin_lets_it_pass(tmp_path: Path) -> None:
    a, slower = write_run(tmp_path, STOCK), write_run(tmp_path, SLOWER)
    assert compare(a, slower, "--margin", "6%").exit_code == 0
    assert refusal("compare", a, slower, "--margin", "6") == "--margin 6: a percentage has its sign, write 6%"
    assert "--margin 1e-300%: an exponent is not read" in refusal("compare", a, slower, "--margin", "1e-300%")
    assert "--margin: 'six' is not a percentage" in refusal("compare", a, slower, "--margin", "six")


def test_what_cannot_be_compared_is_reported_field_by_field_and_can_be_allowed(tmp_path: Path) -> None:
    a, b = write_run(tmp_path, STOCK), write_run(tmp_path, STOCK, seed=1, dilation=2.0, within_tolerance=False)
    done = compare(a, b, "--json")
    assert done.exit_code == 3
    fields = [each["field"] for each in json.loads(done.stdout)["differences"]]
    assert fields == ["dilation", "seed", "calibration"]
    assert "calibration: wanbed calibrate FILE shows" in compare(a, b).stdout
    allowed = [word for field in fields for word in ("--allow", field)]
    assert compare(a, b, *allowed).exit_code == 0


def test_names_are_printed_without_markup_or_control_characters(tmp_path: Path) -> None:
    hostile = "[red]x[/red] \x1b[2J <b>"
    a, b = (write_run(tmp_path, {("10ms", hostile): flat(1.0)}, host={"cpu": f"\x1b[2J{k}"}) for k in "ab")
    done = compare(a, b)
    assert done.exit_code == 0
    assert "[red]x[/red]" in done.stdout
    assert "\x1b" not in done.stdout


def test_two_variants_of_one_run_are_compared(tmp_path: Path) -> None:
    run = write_run(tmp_path, {("10ms", "stock"): flat(1.0), ("10ms", "a=b"): flat(1.2)})
    assert compare(run, run, "--pair", "stock=a=b").exit_code == 1
    assert compare(run, run, "--pair", "a=b=stock").exit_code == 0


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
    done = compare(write_run(tmp_path, noisy), write_run(tmp_path, noisy))
    assert done.exit_code == 0
    assert "UNCLEAR WAN latency 10ms, stock" in done.stdout
    assert "repeats might settle it" in done.stdout


def test_the_noise_of_a_simulation_is_nothing_and_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = (write_run(tmp_path / "made", STOCK, engine="simulate") for _ in range(2))
    done = compare(a, b, "--noise", "3", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["noise_floor"] == 0
    assert "0 by construction" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_the_noise_of_virtual_time_is_not_measured_on_another_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = (write_run(tmp_path / "made", STOCK, clock="virtual") for _ in range(2))
    assert "A ran in virtual time" in refusal("compare", a, b, "--noise", "5")
    assert not (tmp_path / "runs").exists()


def test_the_measured_noise_raises_the_margin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = {key: [[s] for s in (1.0, 1.1, 0.9, 1.2, 0.8)] for key in STOCK}
    again = load_run(write_run(tmp_path / "noise", noisy))
    monkeypatch.setattr("wanbed.runner.emulation.noise_floor.noise_experiment", lambda *_: None)
    monkeypatch.setattr("wanbed.runner.emulation.noise_floor.run_again", lambda *_: again)
    a, slower = write_run(tmp_path, STOCK), write_run(tmp_path, SLOWER)
    document = json.loads(compare(a, slower, "--noise", "5", "--json").stdout)
    assert document["verdict"] == "same"
    assert all(point["margin"] == point["noise_floor"] > 0.05 for point in document["sweep_points"])


def test_noise_measured_elsewhere_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = load_run(write_run(tmp_path / "noise", STOCK, within_tolerance=False))
    monkeypatch.setattr("wanbed.runner.emulation.noise_floor.noise_experiment", lambda *_: None)
    monkeypatch.setattr("wanbed.runner.emulation.noise_floor.run_again", lambda *_: again)
    a, slower = write_run(tmp_path, STOCK), write_run(tmp_path, SLOWER)
    done = compare(a, slower, "--noise", "5")
    assert done.exit_code == 3
    assert "differs from A in calibration" in done.stderr
    assert compare(a, slower, "--noise", "5", "--allow", "calibration").exit_code == 1


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    a, b = write_run(tmp_path, STOCK), write_run(tmp_path, STOCK)
    assert "not a run's folder" in refusal("compare", a, tmp_path / "nothing")
    assert "given twice" in refusal("compare", a, a)
    assert "no variant 'x'" in refusal("compare", a, b, "--pair", "x=stock")
    assert "an equals sign" in refusal("compare", a, b, "--pair", "stock")
    assert "did you mean 'seed'" in refusal("compare", a, b, "--allow", "sed")
    assert "give 3 or more" in refusal("compare", a, b, "--noise", "2")
    assert "give a file" in refusal("compare", a, b, "--markdown", "-", "--json")
    done = compare(a, b, "--markdown", tmp_path / "none" / "summary.md")
    assert done.exit_code == 2
    assert "give another file" in done.stderr
