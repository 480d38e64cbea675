"""What was checked is told setting by setting, the worst by its name."""

from dataclasses import astuple
from pathlib import Path

import pytest

from studies.which_training.grid import Grid, SettingPrice
from studies.which_training.setting import WANS, Method, TriedSetting, Wan, candidates
from studies.which_training.virtual_check import (
    CHECKED,
    Checked,
    VirtualCheck,
    check_text,
    checks,
    chosen_at,
    shrunk_profile,
    shrunk_variant,
)
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.resolved_variant import ResolvedVariant

WAN = Wan(10, 1_000_000_000)

AGREES = Checked(WAN, Method.VARUNA, "one connection", 2.0, 2.02, ())

DOES_NOT = Checked(WAN, Method.ATOM, "ring", 1.0, 0.9, ("full-trunk", "rings"))


def test_a_setting_has_both_times_its_miss_and_what_is_known_of_it() -> None:
    text = check_text([AGREES, DOES_NOT]).replace("\N{NO-BREAK SPACE}", " ")
    assert "| 10 ms, 1 Gbit/s | Varuna, one connection | 2.00 s | 2.02 s | +1.0% | none |" in text
    assert "| 10 ms, 1 Gbit/s | ATOM, ring | 1.00 s | 900 ms | -10.0% | full-trunk and rings |" in text


def test_the_last_line_counts_what_agrees_and_names_the_worst() -> None:
    assert check_text([AGREES, DOES_NOT]).endswith(
        "Of 2 settings 1 agree within 5%; the median is off by 5.5%, the worst by -10.0% (ATOM, 10 ms)."
    )


def test_the_fastest_setting_of_every_method_is_checked() -> None:
    prices = [
        SettingPrice(method, candidate.label, WAN, 1.0 + (candidate != candidates(method, WAN)[-1]), 0.0)
        for method in Method
        for candidate in candidates(method, WAN)
    ]
    assert chosen_at(Grid.of(prices), [WAN]) == [candidates(method, WAN)[-1] for method in Method]


def test_wans_that_are_checked_are_on_the_map() -> None:
    assert set(CHECKED) <= set(WANS)


def test_a_simulation_that_is_too_fast_misses_below_zero() -> None:
    assert Checked(WAN, Method.ATLAS, "one", 2.0, 1.9, ()).miss == pytest.approx(-0.05)


FARTHER = Wan(50, 1_000_000_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("check")
    (path / "profile.json").write_text(shrunk_profile(), encoding="utf-8")
    return path


def shrunk(candidate: TriedSetting, folder: Path) -> ResolvedVariant:
    document = VirtualCheck(FARTHER, candidate.method.synchronous, (candidate,)).document("./profile.json")
    return parse_experiment(document, "check", folder).points()[0].variants[0]


@pytest.mark.parametrize("method", [Method.ONE, Method.VARUNA, Method.HIERARCHICAL])
def test_sizes_are_a_64th_and_times_are_the_same(method: Method, folder: Path) -> None:
    candidate = candidates(method, FARTHER)[0]
    full = parse_experiment(candidate.document, "map", Path()).points()[0].variants[0].work
    small = shrunk(candidate, folder).work
    assert small.forward_ns == pytest.approx(full.forward_ns, rel=1e-6)
    assert small.backward_ns == pytest.approx(full.backward_ns, rel=1e-6)
    assert small.optimizer_ns == pytest.approx(full.optimizer_ns, rel=0.01)
    assert [64 * size for size in small.activation_bytes] == list(full.activation_bytes)
    # Biases and norms go with the hidden size alone.
    assert [64 * size for size in small.gradient_bytes] == pytest.approx(list(full.gradient_bytes), rel=0.01)


@pytest.mark.parametrize("method", list(Method))
def test_every_setting_of_the_map_can_be_checked(method: Method, folder: Path) -> None:
    for candidate in candidates(method, FARTHER):
        assert shrunk(candidate, folder).microbatches * candidate.variant["training"]["pipelines"] == 48


def test_rates_are_a_64th_and_latencies_the_same() -> None:
    (check,) = checks([candidates(Method.DILOCO, FARTHER)[0]])
    topology = check.document("./profile.json")["topology"]
    assert topology["intra"] == {"rate": "1562500000bit"}
    assert topology["wan"] == {"latency": "50ms", "rate": "15625000bit", "node_pair_rate": "15625000bit"}


def test_windows_buckets_and_swapping_are_a_64th_and_periods_are_short() -> None:
    of_dp = shrunk_variant(candidates(Method.HIERARCHICAL, FARTHER)[1].variant)["transport"]
    assert (of_dp["window"], of_dp["bucket"]) == ("32112B", "1638400B")
    of_atom = shrunk_variant(candidates(Method.ATOM, FARTHER)[0].variant)["options"]
    assert of_atom == {"swap": "187500000B/s", "sync_every": 10, "delay": 1, "topology": "ring"}


def test_methods_that_train_for_as_many_iterations_share_an_experiment() -> None:
    found = checks([candidates(method, FARTHER)[0] for method in Method])
    assert [(check.synchronous, check.iterations, len(check.chosen)) for check in found] == [
        (True, 3, 4),
        (False, 11, 3),
    ]
    assert len({astuple(check)[:2] for check in found}) == len({check.name for check in found}) == 2
