"""Rings that meet nothing are computed at once; the results are those of rings that are simulated event by event."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.resolve.connections import count_connections
from wanbed.runner.resolve.tcp_effects import TcpEffects
from wanbed.runner.simulator import variant_simulation
from wanbed.runner.simulator.channels.network import Network
from wanbed.runner.simulator.rings.rings_apart import rings_apart
from wanbed.runner.simulator.simulation import Simulation

ROUNDED_NS = 2
"""A ring by itself rounds the end of each part of a segment, a shared one that of each stretch of a line."""


def experiment(
    *, replicas: int = 3, gradient: str = "64MiB", latency: str = "5ms", gpus: int = 1, **compute: Any
) -> dict[str, Any]:
    """Two stages, each in a datacenter of its own with a replica on every host; activations arrive over the WAN."""
    return {
        "topology": {
            "datacenters": [
                {"name": name, "hosts": replicas // gpus, "gpus_per_host": gpus} for name in ("east", "west")
            ],
            "intra": {"latency": "50us", "rate": "10Gbit"},
            "wan": {"latency": latency, "node_pair_rate": "10Gbit"},
        },
        "model": {"hidden": 1024, "context": 1024},
        "compute": {"forward": "5ms", "backward": "10ms", "gradient": gradient, **compute},
        "training": {"stages": 2, "pipelines": replicas, "microbatches": 4, "iterations": 2, "warmup": 0},
        "engine": "simulate",
        "variants": [{"name": "any", "schedule": "1f1b", "transport": {"connections": 4, "model": "mean"}}],
    }


STRAGGLER = {"slower": [{"pipeline": 1, "factor": 3}]}


def apart(document: dict[str, Any]) -> frozenset[int]:
    """Return the stages whose rings are computed at once in the first place."""
    point = sweep_point(document)
    variant = point.variants[0].in_repeat(0)
    connections = count_connections(point.topology, variant.pairs, variant.transport)
    boundaries = [
        (pipeline[one], pipeline[other])
        for pipeline in variant.placement.pipelines
        for one, other in ((0, 1), (1, 0))
        if len(pipeline) > 1
    ]
    return rings_apart(Network(point.topology, connections, variant, TcpEffects()), boundaries)


def simulated(document: dict[str, Any]) -> Simulation:
    point = sweep_point(document)
    return variant_simulation.simulate_variant(point.topology, point.variants[0].in_repeat(0), 2, symmetry=False)


def together(document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """Return the simulation with all rings event by event."""
    with monkeypatch.context() as changed:
        changed.setattr(variant_simulation, "rings_apart", lambda *_: frozenset())
        return simulated(document)


def largest_difference_ns(one: Simulation, other: Simulation) -> int:
    """Return the most that any two times differ. Everything else has to be the same."""
    for field in fields(one.spans):
        if not field.name.endswith("_ns"):
            np.testing.assert_array_equal(getattr(one.spans, field.name), getattr(other.spans, field.name))
    return max(
        int(np.abs(getattr(one.spans, name) - getattr(other.spans, name)).max()) for name in ("start_ns", "end_ns")
    )


@pytest.mark.parametrize("latency", ["0ms", "1ms", "40ms"])
@pytest.mark.parametrize("gradient", ["40KiB", "5MiB", "64MiB"])
@pytest.mark.parametrize("changes", [{}, STRAGGLER])
def test_times_are_those_of_rings_that_are_simulated_event_by_event(
    changes: dict[str, Any], gradient: str, latency: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = experiment(gradient=gradient, latency=latency, **changes)
    assert apart(document) == {0, 1}
    assert largest_difference_ns(simulated(document), together(document, monkeypatch)) <= ROUNDED_NS


def test_a_ring_that_other_traffic_meets_is_simulated_event_by_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """West's ring is slow, so that east, which has less to sum, sends the next iteration's activations meanwhile."""
    document = experiment(gradient=["1KiB", "512MiB"])
    runs: list[tuple[frozenset[int], frozenset[int]]] = []
    train = variant_simulation._train

    def recorded(*arguments: Any, **more: Any) -> Any:
        found = train(*arguments, **more)
        runs.append((arguments[3], found.met))
        return found

    monkeypatch.setattr(variant_simulation, "_train", recorded)
    of_all = simulated(document)
    assert runs == [({0, 1}, {1}), ({0}, frozenset())]
    assert largest_difference_ns(of_all, together(document, monkeypatch)) <= ROUNDED_NS


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(experiment(replicas=4, gpus=2), id="two replicas of a ring have the same host"),
        pytest.param(experiment(replicas=2), id="acknowledgements go the other way"),
    ],
)
def test_rings_that_meet_themselves_are_not_apart(document: dict[str, Any]) -> None:
    assert apart(document) == frozenset()


def test_rings_of_replicas_whose_times_are_drawn_are_not_apart() -> None:
    assert apart(experiment(jitter={"distribution": "uniform", "spread": "30%"})) == frozenset()


def test_rings_across_the_wan_are_not_apart() -> None:
    document = experiment()
    document["training"] |= {"stages": 1, "pipelines": 6}
    document["variants"][0]["schedule"] = "dp"
    assert apart(document) == frozenset()
