from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.results.runs import flat, made
from wanbed.results import load
from wanbed.results.comparison.pairing import PairingError, pair_runs


def test_sweep_points_are_paired_by_their_swept_values_whatever_their_number(tmp_path: Path) -> None:
    a = made(tmp_path, {("10ms", "atlas"): flat(1.0), ("40ms", "atlas"): flat(2.0)})
    b = made(tmp_path, {("40ms", "atlas"): flat(2.2), ("10ms", "atlas"): flat(1.1)})
    pairing = pair_runs(a, b)
    assert [(dict(pair.point), pair.a.median_s, pair.b.median_s) for pair in pairing.pairs] == [
        ({"topology.wan.latency": "10ms"}, 1.0, 1.1),
        ({"topology.wan.latency": "40ms"}, 2.0, 2.2),
    ]
    assert pairing.unpaired == ()


def test_a_side_holds_the_period_of_every_repeat(tmp_path: Path) -> None:
    run = made(tmp_path, {("10ms", "atlas"): [[1.0, 2.0], [3.0, 4.0, 5.0]]})
    (pair,) = pair_runs(run, made(tmp_path, {("10ms", "atlas"): flat(1.0)})).pairs
    assert pair.a.times_s == ((1.5,), (4.0,))
    assert (pair.a.repeats, pair.a.iterations, pair.a.median_s) == (2, 5, 2.75)


def test_what_only_one_run_has_is_reported(tmp_path: Path) -> None:
    a = made(tmp_path, {("10ms", "atlas"): flat(1.0), ("10ms", "varuna"): flat(1.0)})
    b = made(tmp_path, {("10ms", "atlas"): flat(1.0), ("20ms", "atlas"): flat(1.0)})
    assert [(each.field, each.run, each.name) for each in pair_runs(a, b).unpaired] == [
        ("sweep_points", "B", "WAN latency 20ms"),
        ("variants", "A", "varuna"),
    ]


def test_a_sweep_point_without_a_finished_trial_is_paired(tmp_path: Path) -> None:
    times = {("10ms", "atlas"): flat(1.0), ("20ms", "atlas"): flat(1.0)}
    a, b = made(tmp_path, times), made(tmp_path, {**times, ("20ms", "atlas"): []})
    assert [pair.b.median_s for pair in pair_runs(a, b).pairs] == [1.0, None]


def test_variants_of_other_names_are_paired_on_request(tmp_path: Path) -> None:
    a = made(tmp_path, {("10ms", "stock"): flat(1.0), ("10ms", "both"): flat(2.0)})
    b = made(tmp_path, {("10ms", "both"): flat(2.0), ("10ms", "mine"): flat(1.0)})
    pairing = pair_runs(a, b, [("stock", "mine")])
    assert [pair.variant_text for pair in pairing.pairs] == ["stock -> mine", "both"]
    assert pairing.unpaired == ()


def test_two_variants_of_one_run_are_compared_alone(tmp_path: Path) -> None:
    run = made(tmp_path, {("10ms", name): flat(1.0) for name in ("stock", "mine", "third")})
    pairing = pair_runs(run, run, [("stock", "mine")])
    assert [(pair.a.variant, pair.b.variant) for pair in pairing.pairs] == [("stock", "mine")]
    assert pairing.unpaired == ()


def test_pairs_that_cannot_be_are_refused(tmp_path: Path) -> None:
    run = made(tmp_path, {("10ms", "stock"): flat(1.0), ("10ms", "mine"): flat(1.0)})
    other = made(tmp_path, {("10ms", "stock"): flat(1.0)})
    with pytest.raises(PairingError, match="given twice"):
        pair_runs(run, run)
    with pytest.raises(PairingError, match="no variant 'mien', it has stock and mine"):
        pair_runs(run, other, [("mien", "stock")])
    with pytest.raises(PairingError, match="paired twice"):
        pair_runs(run, other, [("stock", "stock"), ("mine", "stock")])


def test_a_simulation_is_exact_unless_it_draws(build_run: Callable[..., Path]) -> None:
    simulated = {"engine": "simulate"}
    exact, drawn = (load(build_run(name=name, manifest=simulated, drawn=name == "b")) for name in ("a", "b"))
    for pair in pair_runs(exact, drawn).pairs:
        assert (pair.a.exact, pair.b.exact) == (True, False)
        assert (pair.a.repeatable_within, pair.b.repeatable_within) == (0.0, None)
