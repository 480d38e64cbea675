"""Counters of links and node pairs in a simulation."""

from pathlib import Path

import numpy as np
import pytest

from wanbed.results.records.span_columns import SpanColumns
from wanbed.results.records.trial_columns import TrialCounters
from wanbed.runner.companions.telemetry import record
from wanbed.runner.companions.telemetry.record import link_counters
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.simulation import HostTraffic, Simulation
from wanbed.testbed.network.topology import Topology

MS = 1_000_000

NO_SPANS = SpanColumns.of_training(np.zeros((0, 8), np.int64))


def topology(datacenters: int) -> Topology:
    named = [{"name": name, "hosts": 2} for name in ("east", "west", "north")[:datacenters]]
    wan = {"wan": {"latency": "10ms"}} if datacenters > 1 else {}
    compute = {"forward": "10ms", "activation": "1MiB"}
    return (
        parse_experiment(
            {"topology": {"datacenters": named, **wan}, "compute": compute, "training": {"microbatches": 2}},
            "exp.yaml",
            Path(),
        )
        .points()[0]
        .topology
    )


def traffic(source: str, destination: str, *points: tuple[int, int]) -> HostTraffic:
    times_ns, counts = np.array(points, np.int64).T
    return HostTraffic(source, destination, times_ns, counts)


def counted(*crossing: HostTraffic, datacenters: int = 2) -> TrialCounters:
    return link_counters(topology(datacenters), Simulation(NO_SPANS, crossing, {}))


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
    monkeypatch.setattr(record, "MAX_SAMPLE_ROWS", 30)
    assert counted(traffic("east-0", "west-0", (0, 0), (3600_000 * MS, 1))).wire_bytes.shape == (3, 10)


def test_nothing_is_sampled_where_there_is_no_wan() -> None:
    kept = counted(datacenters=1)
    assert (kept.ends, kept.wire_bytes.size) == ([], 0)
