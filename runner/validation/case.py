"""Simulate a small experiment whose outcome is known, written as a user writes one, and read figures off it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ground.units import format_duration
from runner.planner.experiment_file import parse_experiment
from runner.simulator.simulation import KIND_CODES, Simulate, Simulation
from runner.tcp.effects import IDEAL, TcpEffects


def chain(latencies_ns: Sequence[int], **wan: str) -> dict[str, Any]:
    """Return a topology of one GPU a datacenter: ``dc0``, ``dc1`` and on, with that latency between each and the next.

    Rates are unlimited unless ``wan`` says otherwise.
    """
    return {
        "datacenters": [{"name": f"dc{stage}", "hosts": 1} for stage in range(len(latencies_ns) + 1)],
        "wan": wan,
        "links": [
            {"between": [f"dc{stage}", f"dc{stage + 1}"], "latency": format_duration(latency_ns)}
            for stage, latency_ns in enumerate(latencies_ns)
        ],
    }


def side_by_side(hosts: int, **wan: str) -> dict[str, Any]:
    """Return a topology of two datacenters, ``east`` and ``west``, inside which nothing takes any time."""
    return {
        "datacenters": [{"name": "east", "hosts": hosts}, {"name": "west", "hosts": hosts}],
        "intra": {"latency": "0ns", "rate": "unlimited"},
        "wan": wan,
    }


def simulated(
    simulate: Simulate,
    topology: Mapping[str, Any],
    *,
    compute: Mapping[str, Any],
    training: Mapping[str, Any],
    variant: Mapping[str, Any],
    effects: TcpEffects = IDEAL,
) -> Simulation:
    """Simulate one iteration of one variant, all given as the sections of an experiment's file have them."""
    document = {
        "topology": topology,
        "compute": {"activation": "1B", "gradient": "1B", **compute},
        "training": {"iterations": 1, "warmup": 0, **training},
        "variants": [{"name": "validation", **variant}],
    }
    (point,) = parse_experiment(document, "validation", Path()).points()
    return simulate(point.topology, point.variants[0], 1, effects=effects)


def iteration_ns(simulation: Simulation) -> int:
    """Return how long the only iteration took."""
    ((begin_ns, end_ns),) = simulation.windows_ns
    return end_ns - begin_ns


def arrival_ns(simulation: Simulation, rank: int, microbatch: int = 0) -> int:
    """Return when a microbatch's activation was whole at a rank, after the first forward of the rank before ended.

    Raises ValueError if it came never or more than once.
    """
    spans = simulation.spans
    received = (spans.rank == rank) & (spans.kind == KIND_CODES["receive"]) & (spans.microbatch == microbatch)
    from_before = received & (spans.peer == rank - 1)
    computed = (spans.rank == rank - 1) & (spans.kind == KIND_CODES["forward"]) & (spans.microbatch == 0)
    (arrived_ns,), (began_ns,) = spans.end_ns[from_before].tolist(), spans.end_ns[computed].tolist()
    return int(arrived_ns - began_ns)


def all_reduce_ns(simulation: Simulation) -> int:
    """Return the time from the first rank's begin of the all-reduce to the last one's end."""
    spans = simulation.spans
    found = spans.kind == KIND_CODES["all_reduce"]
    return int(np.max(spans.end_ns[found]) - np.min(spans.start_ns[found]))
