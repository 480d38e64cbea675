"""What is kept of a simulation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.simulator.simulation_on_paper import simulate_on_paper
from wanbed.results.records.run_store import TrialRecord
from wanbed.results.records.span_columns import SpanColumns
from wanbed.results.records.trial_columns import TrialCounters, TrialSpans
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.simulated_runs import simulated_trial
from wanbed.runner.simulated_runs.simulated_trial import TrialSpec, link_counters, simulated_record
from wanbed.runner.simulator.simulation import Simulation, WanTraffic

MS = 1_000_000
NO_SPANS = SpanColumns.of_training(np.zeros((0, 8), np.int64))


def point(datacenters: int = 2, **changes: Any) -> SweepPoint:
    named = [{"name": name, "hosts": 2} for name in ("east", "west", "north")[:datacenters]]
    document = {
        "topology": {"datacenters": named, **({"wan": {"latency": "10ms"}} if datacenters > 1 else {})},
        "compute": {"forward": "10ms", "activation": "1MiB"},
        "training": {"microbatches": 2, "iterations": 2},
        "engine": "simulate",
        **changes,
    }
    return parse_experiment(document, "exp.yaml", Path()).points()[0]


def record(of: SweepPoint) -> TrialRecord:
    return simulated_record(TrialSpec.of(of.trials()[0], of), simulate_on_paper)


def traffic(source: str, destination: str, *points: tuple[int, int]) -> WanTraffic:
    times_ns, counts = np.array(points, np.int64).T
    return WanTraffic(source, destination, times_ns, counts)


def counted(*crossing: WanTraffic, datacenters: int = 2) -> TrialCounters:
    return link_counters(point(datacenters).topology, Simulation(NO_SPANS, crossing, {}))


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
        "tcp_effects": {"window": True, "slow_start": True, "headers": True, "impairments": True},
        "torch_times_of_profile": None,
        "losses": [],
    }


def test_a_link_carries_what_its_node_pairs_carry_and_idle_links_are_there() -> None:
    kept = counted(
        traffic("east-0", "west-0", (0, 0), (200 * MS, 2000)),
        traffic("east-1", "west-1", (100 * MS, 0), (200 * MS, 500)),
        traffic("west-1", "east-1", (0, 0), (50 * MS, 0)),
    )
    assert kept.times_ns.tolist() == [0, 100 * MS, 200 * MS]
    assert dict(zip(kept.ends, kept.wire_bytes.tolist(), strict=True)) == {
        ("link", "east", "west"): [0, 1000, 2500],
        ("link", "west", "east"): [0, 0, 0],
        ("node_pair", "east-0", "west-0"): [0, 1000, 2000],
        ("node_pair", "east-1", "west-1"): [0, 0, 500],
    }


def test_the_last_sample_has_every_byte_however_many_there_are() -> None:
    count = 2**50 + 1
    kept = counted(traffic("east-0", "west-0", (0, 0), (123_456_789, count)))
    assert kept.times_ns.tolist() == [0, 100 * MS, 123_456_789]
    assert kept.wire_bytes[:, -1].tolist() == [count, 0, count]


def test_long_trials_have_evenly_spaced_samples_of_counters_that_never_fall() -> None:
    points = [(int(time_ns), 7 * index) for index, time_ns in enumerate(np.linspace(0, 3600e9, 77))]
    kept = counted(traffic("east-0", "west-0", *points))
    assert len(kept.times_ns) == 1000
    assert (kept.times_ns[0], kept.times_ns[-1]) == (0, 3_600_000 * MS)
    assert np.ptp(np.diff(kept.times_ns)) <= 1
    assert (np.diff(kept.wire_bytes, axis=1) >= 0).all()


def test_many_node_pairs_have_fewer_samples_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_trial, "MAX_SAMPLE_ROWS", 30)
    kept = counted(traffic("east-0", "west-0", (0, 0), (3600_000 * MS, 1)))
    assert kept.wire_bytes.shape == (3, 10)


def test_nothing_is_sampled_where_there_is_no_wan() -> None:
    kept = counted(datacenters=1)
    assert (kept.ends, kept.wire_bytes.size) == ([], 0)


def test_a_trial_is_named_by_sweep_point_and_variant() -> None:
    one = TrialSpec.of(point().trials()[0], point())
    swept = point(sweep={"topology.wan.latency": ["5ms"]})
    assert (str(one), str(TrialSpec.of(swept.trials()[0], swept))) == (
        "gpipe",
        "topology.wan.latency=5ms: gpipe",
    )
