"""What is kept of a simulation."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.simulator.simulation_on_paper import simulate_on_paper
from wanbed.results.records.run_store import TrialRecord
from wanbed.results.records.trial_columns import TrialSpans
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.simulated_runs.simulated_trial import SimulatedTrial, simulated_record
from wanbed.runner.simulator.variant_simulation import simulate_variant


def point(datacenters: int = 2, **changes: Any) -> SweepPoint:
    named = [{"name": name, "hosts": 2} for name in ("east", "west", "north")[:datacenters]]
    return parse_experiment(
        {
            "topology": {"datacenters": named, **({"wan": {"latency": "10ms"}} if datacenters > 1 else {})},
            "compute": {"forward": "10ms", "activation": "1MiB"},
            "training": {"microbatches": 2, "iterations": 2},
            "engine": "simulate",
            **changes,
        },
        "exp.yaml",
        Path(),
    ).points()[0]


def record(of: SweepPoint) -> TrialRecord:
    return simulated_record(SimulatedTrial.of(of.trials()[0], of), simulate_on_paper)


def test_spans_are_kept_with_the_places_of_their_ranks() -> None:
    kept = record(point()).spans
    assert isinstance(kept, TrialSpans)
    assert [(owner.rank, owner.host, owner.datacenter, owner.stage) for owner in kept.owners] == [
        (0, "east-0", "east", 0), (1, "east-1", "east", 1), (2, "west-0", "west", 2), (3, "west-1", "west", 3),
    ]  # fmt: skip
    assert set(kept.columns.rank.tolist()) == {0, 1, 2, 3}


def test_the_facts_are_those_of_an_emulated_trial_that_make_sense() -> None:
    assert record(point(model="gpt-tiny")).facts == {
        "warmup_iterations": 1,
        "tokens_per_iteration": 2 * 128,
        "dilation": 1.0,
        "connections": [["east-0", "west-0", 2]],
        "pipelines_per_cell": 1,
        "all_reduce_wan_ratio": [0.0] * 4,
        "planned_makespan_s": None,
        "period_bound": {"time_ns": 170_199_999, "part": "fill and drain"},
        "makespan_bound": {"time_ns": 170_199_999, "part": "fill and drain"},
        "tcp_effects": {"window": True, "slow_start": True, "headers": True, "impairments": True, "packets": True},
        "torch_times_of_profile": None,
        "losses": [],
    }


@pytest.mark.parametrize(
    ("transport", "iterations", "followed", "marks"),
    [
        ({"model": "mean"}, 3, False, ["short-transfers", "window-near-the-line"]),
        # Forwards fill the line, so that HyStart takes the round trips of backwards for late.
        ({}, 3, True, ["packets"]),
        ({"model": "packets"}, 3, True, ["packets"]),
        ({"model": "packets", "window": "64KiB"}, 3, True, []),
        ({"model": "packets", "window": "64KiB"}, 1, True, []),
    ],
)
def test_a_trial_is_marked_whose_packets_come_out_otherwise_than_their_mean(
    transport: dict[str, Any], iterations: int, followed: bool, marks: list[str]
) -> None:
    own = point(
        topology={
            "datacenters": [{"name": name, "hosts": 1} for name in ("east", "west")],
            "wan": {"latency": "20ms", "rate": "200Mbit"},
        },
        compute={"forward": "20ms", "backward": "40ms", "activation": "512KiB"},
        training={"microbatches": 8, "iterations": iterations, "warmup": 0 if iterations == 1 else 1},
        variants=[{"name": "own", "schedule": "varuna", "transport": {"window": "1400KiB", **transport}}],
    )
    facts = simulated_record(SimulatedTrial.of(own.trials()[0], own), simulate_variant).facts
    assert facts["tcp_effects"]["packets"] is followed
    assert [each["name"] for each in facts.get("known_misses", [])] == marks


def test_a_trial_is_named_by_sweep_point_and_variant() -> None:
    one = SimulatedTrial.of(point().trials()[0], point())
    swept = point(sweep={"topology.wan.latency": ["5ms"]})
    assert (str(one), str(SimulatedTrial.of(swept.trials()[0], swept))) == (
        "gpipe",
        "topology.wan.latency=5ms: gpipe",
    )
