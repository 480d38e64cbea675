"""Simulate small experiments of which the right times are known, and compare."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wanbed.ground.units import format_duration
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.tcp_effects import IDEAL, TcpEffects
from wanbed.runner.simulator.simulation import KIND_CODES, Simulate, Simulation
from wanbed.testbed.network.links.wan_link import course_of
from wanbed.testbed.network.topology import Topology

Changes = Sequence[tuple[int, Mapping[str, Any]]]
"""Times in nanoseconds, rising, and the fields of ``LinkConditions`` that are others than the first from then on."""


def chain(latencies_ns: Sequence[int], **wan: str) -> dict[str, Any]:
    """Return a topology of datacenters ``dc0``, ``dc1``, ... with one GPU each, and a latency to each next one.

    Rates are unlimited unless ``wan`` sets them.
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
    """Return a topology of two datacenters, ``east`` and ``west``, with no delay and no rate limit inside them."""
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
    changes: Changes = (),
    iterations: int = 1,
) -> Simulation:
    """Simulate some iterations of one variant. The arguments are sections of an experiment file.

    All links have the ``changes``, in both directions.
    """
    document = {
        "engine": "simulate",
        "topology": topology,
        "compute": {"activation": "1B", "gradient": "1B", **compute},
        "training": {"iterations": iterations, "warmup": 0, **training},
        "variants": [{"name": "validation", **variant}],
    }
    (point,) = parse_experiment(document, "validation", Path()).points()
    return simulate(with_changes(point.topology, changes), point.variants[0], iterations, effects=effects)


def with_changes(topology: Topology, changes: Changes) -> Topology:
    """Return the network with all links changing alike, in both directions; every other condition stays the first."""
    links = []
    for link in topology.wan if changes else ():
        there, back = (
            course_of([(0, first), *((at_ns, replace(first, **changed)) for at_ns, changed in changes)])
            for _, first in link.directions
        )
        links.append(replace(link, courses=(there, back)))
    return replace(topology, wan=tuple(links)) if changes else topology


def iteration_ns(simulation: Simulation) -> int:
    """Return the duration of the only iteration."""
    ((begin_ns, end_ns),) = simulation.windows_ns
    return end_ns - begin_ns


def arrival_ns(simulation: Simulation, rank: int, microbatch: int = 0) -> int:
    """Return when a microbatch's activation had arrived at a rank, since the end of the previous rank's first forward.

    Raise ValueError unless it arrived exactly once.
    """
    spans = simulation.spans
    received = (spans.rank == rank) & (spans.kind == KIND_CODES["receive"]) & (spans.microbatch == microbatch)
    from_before = received & (spans.peer == rank - 1)
    computed = (spans.rank == rank - 1) & (spans.kind == KIND_CODES["forward"]) & (spans.microbatch == 0)
    (arrived_ns,), (forward_end_ns,) = spans.end_ns[from_before].tolist(), spans.end_ns[computed].tolist()
    return int(arrived_ns - forward_end_ns)


def all_reduce_ns(simulation: Simulation) -> int:
    """Return the time from the first rank's start of the all-reduce to the last rank's end of it."""
    spans = simulation.spans
    found = spans.kind == KIND_CODES["all_reduce"]
    return int(np.max(spans.end_ns[found]) - np.min(spans.start_ns[found]))


@dataclass(frozen=True)
class LawCheck:
    """One case. ``law`` is the formula as text. Times are in integer nanoseconds: one value, or one for each event."""

    case: str
    law: str
    expected_ns: tuple[int, ...]
    simulated_ns: tuple[int, ...]

    @property
    def exact(self) -> bool:
        """Tell whether the simulated times equal the expected ones exactly."""
        return self.simulated_ns == self.expected_ns


ClosedForm = Callable[[Simulate], LawCheck]
"""Simulates a case, and returns its times beside those of a formula."""
