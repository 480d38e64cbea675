"""A check sends a 64th of what the map's setting sends, over a 64th of the rate, and computes as long."""

from dataclasses import astuple
from pathlib import Path

import pytest

from studies.which_training.candidates import TriedSetting, candidates
from studies.which_training.setting import Method, Wan
from studies.which_training.virtual_check.shrunk import VirtualCheck, checks, shrunk_profile, shrunk_variant
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.resolved_variant import ResolvedVariant

WAN = Wan(50, 1_000_000_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("check")
    (path / "profile.json").write_text(shrunk_profile(), encoding="utf-8")
    return path


def shrunk(candidate: TriedSetting, folder: Path) -> ResolvedVariant:
    document = VirtualCheck(WAN, candidate.method.synchronous, (candidate,)).document("./profile.json")
    return parse_experiment(document, "check", folder).points()[0].variants[0]


@pytest.mark.parametrize("method", [Method.ONE, Method.VARUNA, Method.HIERARCHICAL])
def test_sizes_are_a_64th_and_times_are_the_same(method: Method, folder: Path) -> None:
    candidate = candidates(method, WAN)[0]
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
    for candidate in candidates(method, WAN):
        assert shrunk(candidate, folder).microbatches * candidate.variant["training"]["pipelines"] == 48


def test_rates_are_a_64th_and_latencies_the_same() -> None:
    (check,) = checks([candidates(Method.DILOCO, WAN)[0]])
    topology = check.document("./profile.json")["topology"]
    assert topology["intra"] == {"rate": "1562500000bit"}
    assert topology["wan"] == {"latency": "50ms", "rate": "15625000bit", "node_pair_rate": "15625000bit"}


def test_windows_buckets_and_swapping_are_a_64th_and_periods_are_short() -> None:
    of_dp = shrunk_variant(candidates(Method.HIERARCHICAL, WAN)[1].variant)["transport"]
    assert (of_dp["window"], of_dp["bucket"]) == ("32112B", "1638400B")
    of_atom = shrunk_variant(candidates(Method.ATOM, WAN)[0].variant)["options"]
    assert of_atom == {"swap": "187500000B/s", "sync_every": 10, "delay": 1, "topology": "ring"}


def test_methods_that_train_for_as_many_iterations_share_an_experiment() -> None:
    found = checks([candidates(method, WAN)[0] for method in Method])
    assert [(check.synchronous, check.iterations, len(check.chosen)) for check in found] == [
        (True, 3, 4),
        (False, 11, 3),
    ]
    assert len({astuple(check)[:2] for check in found}) == len({check.name for check in found}) == 2
