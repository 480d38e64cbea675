"""The network preset, model and compute profile of docs/extending.md make an experiment that resolves and simulates."""

import json
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from wanbed.ground.impairments import Impairments
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.simulator.simulation import KIND_CODES
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.workloads.gpt.gpt_config import GptConfig

SECTION = "A WAN, a model, a compute profile"
PRESET, EXPERIMENT = blocks(DOCS / "extending.md", "yaml", SECTION)
(PROFILE,) = blocks(DOCS / "extending.md", "json", SECTION)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The page's experiment, beside its two other files."""
    for text in (PRESET, EXPERIMENT):
        (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text, encoding="utf-8")
    (tmp_path / "h100.json").write_text(PROFILE, encoding="utf-8")
    return tmp_path / "experiment.yaml"


def test_links_are_those_of_the_preset(file: Path) -> None:
    (point,) = load_experiment(file, []).points()
    link = point.topology.conditions("north", "cloud")
    assert (link.latency_ns, link.rate_bps, link.node_pair_rate_bps) == (14_000_000, None, 2_000_000_000)


def test_a_pair_of_the_preset_has_its_impairments(file: Path) -> None:
    (point,) = load_experiment(file, ["topology.datacenters.1.name=south"]).points()
    assert point.topology.conditions("south", "north").impairments == Impairments(jitter_ns=100_000)


def test_forwards_take_the_operations_over_the_profile_s_efficient_peak(file: Path) -> None:
    (point,) = load_experiment(file, [], engine="simulate").points()
    spans = simulate_variant(point.topology, point.variants[0], 1).spans
    profile = json.loads(PROFILE)
    model = GptConfig(layers=4, hidden=2048, context=2048, heads=16, vocabulary=50_304)
    for stage in (0, 1):
        flops = model.forward_flops(stage, 2)
        expected_ns = round(flops / (profile["peak_flops_per_s"] * profile["efficiency"]) * 1e9)
        forwards = (spans.kind == KIND_CODES["forward"]) & (spans.rank == stage)
        assert set(spans.end_ns[forwards] - spans.start_ns[forwards]) == {expected_ns}
