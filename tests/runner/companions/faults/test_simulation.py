"""Replicas of a star that are killed and come back, on a grid of times: an iteration of 65 ms, a latency of 10 ms."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import wanbed
from tests.support.present import present
from tests.support.runner.small_experiment import sweep_point
from wanbed.results.reading.run import Run
from wanbed.results.records.span_log import COMPUTE_KINDS
from wanbed.runner.resolve.tcp_effects import IDEAL
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant

MS = 1_000_000

ITERATIONS, ITERATION_MS, LATENCY_MS = 12, 4 * 15 + 5, 10

COMPUTED = [KIND_CODES[kind] for kind in COMPUTE_KINDS]


def simulated(*fail: dict[str, Any], sync_every: int = 4, iterations: int = ITERATIONS) -> Simulation:
    """Three replicas of one stage that sum every four iterations over a star, of which two are enough."""
    options = {"sync_every": sync_every, "topology": "star", "quorum": 2}
    point = sweep_point(
        {
            "topology": {
                "datacenters": [{"name": name, "hosts": 1} for name in ("east", "central", "west")],
                "wan": {"latency": f"{LATENCY_MS}ms", "rate": "1Gbit"},
            },
            "compute": {
                "forward": "5ms",
                "backward": "10ms",
                "optimizer": "5ms",
                "activation": "1KiB",
                "gradient": "1KB",
            },
            "training": {"stages": 1, "pipelines": 3, "microbatches": 4, "iterations": iterations, "warmup": 0},
            "variants": [{"name": "star", "schedule": "diloco", "options": options, "transport": {"model": "ideal"}}],
            "fail": list(fail),
            "engine": "simulate",
        }
    )
    variant = replace(point.variants[0], failures=point.faults.faults)
    return simulate_variant(point.topology, variant, iterations, effects=IDEAL)


def iterations_of(simulation: Simulation, rank: int) -> list[int]:
    """The iterations of which a rank has computed anything."""
    spans = simulation.spans
    own = spans.rank == rank
    return sorted(
        {int(each) for each, kind in zip(spans.iteration[own], spans.kind[own], strict=True) if kind in COMPUTED}
    )


@pytest.mark.parametrize("rank", [1, 2])
def test_the_one_that_gathers_knows_of_a_failure_a_latency_later(rank: int) -> None:
    simulation = simulated({"rank": rank, "at": "100ms"})
    (failure,) = simulation.failures
    assert (failure.rank, failure.at_ns, failure.known_ns, failure.joined_ns) == (
        rank,
        100 * MS,
        (100 + LATENCY_MS) * MS,
        None,
    )
    # Of the second iteration, from 65 ms to 130, it has finished nothing.
    assert iterations_of(simulation, rank) == [0]
    assert iterations_of(simulation, 3 - rank) == iterations_of(simulation, 0) == list(range(ITERATIONS))


@pytest.mark.parametrize(("at", "finished"), [("0ms", []), ("30ms", []), ("64999us", []), ("65001us", [0])])
def test_an_iteration_counts_that_has_been_finished(at: str, finished: list[int]) -> None:
    # The optimizer runs from 60 ms to 65.
    assert iterations_of(simulated({"rank": 1, "at": at}), 1) == finished


def test_a_sum_does_not_wait_for_a_replica_that_is_known_to_have_ended() -> None:
    simulation, undisturbed = simulated({"rank": 1, "at": "100ms"}, {"rank": 2, "at": "1ms"}), simulated()
    sums, whole = (each.spans.kind == KIND_CODES["all_reduce"] for each in (simulation, undisturbed))
    assert set(simulation.spans.rank[sums].tolist()) == {0}
    assert len(simulation.spans.rank[sums]) == ITERATIONS // 4
    # Alone it waits for nobody.
    assert (simulation.spans.end_ns[sums] == simulation.spans.start_ns[sums]).all()
    assert len(undisturbed.spans.rank[whole]) == 3 * ITERATIONS // 4


def test_one_that_comes_back_calls_for_three_latencies_and_joins_before_the_next_iteration() -> None:
    # Back at 150 ms, it has called by 180; the third iteration of the one that gathers ends at 195 ms.
    simulation = simulated({"rank": 1, "at": "100ms", "for": "50ms"})
    (failure,) = simulation.failures
    # What it begins with, 8 bytes a parameter, takes hardly more than a latency.
    assert (195 + LATENCY_MS) * MS < present(failure.joined_ns) < (195 + LATENCY_MS + 2) * MS
    assert iterations_of(simulation, 1) == [0, *range(3, ITERATIONS)]
    spans = simulation.spans
    own = (spans.rank == 1) & (spans.iteration == 3)
    assert spans.start_ns[own].min() == failure.joined_ns


@pytest.mark.parametrize(("lasts", "joined_ms"), [("64999us", 195), ("65001us", 260 + LATENCY_MS)])
def test_it_joins_only_if_it_has_called_when_an_iteration_ends(lasts: str, joined_ms: int) -> None:
    # After the fourth iteration, until 260 ms, a sum is awaited, which takes a latency.
    (failure,) = simulated({"rank": 1, "at": "100ms", "for": lasts}).failures
    assert joined_ms + LATENCY_MS < present(failure.joined_ns) / MS < joined_ms + LATENCY_MS + 2


def test_one_that_comes_back_too_late_never_joins() -> None:
    (failure,) = simulated({"rank": 1, "at": "100ms", "for": "10s"}).failures
    assert failure.joined_ns is None


def test_each_failure_of_a_replica_is_told() -> None:
    simulation = simulated({"rank": 1, "at": "100ms", "for": "10ms"}, {"rank": 1, "at": "500ms", "for": "10ms"})
    first, second = simulation.failures
    assert first.at_ns < present(first.joined_ns) < second.at_ns < present(second.joined_ns)
    assert second.known_ns == (500 + LATENCY_MS) * MS
    assert iterations_of(simulation, 0) == list(range(ITERATIONS))


FAILING = 2

DOCUMENT: dict[str, Any] = yaml.safe_load("""
engine: simulate
topology:
  datacenters: [{name: east, hosts: 1}, {name: central, hosts: 1}, {name: west, hosts: 1}]
  wan: {latency: 10ms, rate: 500Mbit}
model: {layers: 4, hidden: 128, context: 128, heads: 4, vocabulary: 1000}
compute: {forward: 24ms, backward: 48ms, optimizer: 2ms}
training: {pipelines: 3, stages: 1, microbatches: 4, iterations: 12, warmup: 2}
variants:
  - {name: star, schedule: diloco, options: {sync_every: 2, topology: star, quorum: 2}}
""")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_with(*fail: dict[str, Any], **changes: Any) -> Run:
    return wanbed.simulate(wanbed.Experiment(**{**DOCUMENT, "fail": list(fail), **changes}), jobs=1)


def optimizer_iterations(run: Run, rank: int) -> list[int]:
    spans = run.spans
    return sorted(set(spans[(spans["rank"] == rank) & (spans["kind"] == "optimizer")]["iteration"]))


def test_the_others_go_on_without_a_rank_that_fails() -> None:
    run = run_with({"rank": FAILING, "at": "1s"})
    (row,) = run.summary.to_dict("records")
    assert row["outcome"] == "survived"
    # The rank that gathers knows one latency later.
    assert row["time_to_detect_s"] == pytest.approx(0.010, abs=1e-6)
    assert row["time_to_recover_s"] is None or row["time_to_recover_s"] != row["time_to_recover_s"]
    # An iteration takes 0.29 s: of the fourth it has finished nothing.
    spans = run.spans[(run.spans["rank"] == FAILING) & run.spans["kind"].isin(("forward", "backward", "optimizer"))]
    assert sorted(set(spans["iteration"])) == optimizer_iterations(run, FAILING)
    assert optimizer_iterations(run, FAILING)[-1] < 4
    assert optimizer_iterations(run, 0) == optimizer_iterations(run, 1) == list(range(ITERATIONS))


def test_a_rank_that_comes_back_joins_the_others_and_delays_none() -> None:
    undisturbed, run = run_with(), run_with({"rank": FAILING, "at": "1s", "for": "500ms"})
    (row,) = run.summary.to_dict("records")
    assert row["outcome"] == "survived"
    # Its call takes three latencies; then it waits for an iteration to end, and gets 8 bytes a parameter.
    assert 0.53 < row["time_to_recover_s"] < 0.53 + 0.4 + 0.4
    found = optimizer_iterations(run, FAILING)
    missed = sorted(set(range(ITERATIONS)) - set(found))
    assert missed == list(range(missed[0], missed[-1] + 1))
    assert found[-1] == ITERATIONS - 1
    counts = [(each.spans["rank"] == rank).sum() for each in (undisturbed, run) for rank in (0, 1)]
    assert counts[:2] == counts[2:]
    for rank in (0, 1):
        ends_ns = [each.spans[each.spans["rank"] == rank]["end_ns"].max() for each in (undisturbed, run)]
        assert ends_ns[1] <= ends_ns[0] * 1.01


def test_a_fault_after_the_end_changes_nothing() -> None:
    run = run_with({"rank": FAILING, "at": "1000s"})
    assert run.summary["outcome"].tolist() == ["undisturbed"]
    assert optimizer_iterations(run, FAILING) == list(range(ITERATIONS))
