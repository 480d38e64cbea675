"""With an ideal transport, every span of the simulator ends when it does on a fluid max-min network."""

import random
from typing import Any

import numpy as np
import pytest

from tests.support.runner.small_experiment import sweep_point
from tests.support.simulator.fluid_training import FluidTraining, Limits, SpanEnd
from wanbed.runner.resolve.tcp_effects import IDEAL
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant

CASES, BATCH = 300, 30
MOST_DEVIATION_NS = 1000
KINDS = {KIND_CODES[kind]: kind for kind in ("forward", "backward", "receive", "all_reduce")}
MBIT = 10**6


def case(seed: int) -> tuple[dict[str, Any], Limits]:
    """Several pipelines over datacenters that share node pairs, trunks, ports and hosts, with and without rings."""
    choose = random.Random(seed)
    datacenters, stages, pipelines = choose.randint(1, 3), choose.randint(2, 3), choose.randint(2, 4)
    gpus = choose.randint(1, 3)
    # A ring over hops longer than the way around them waits for room, which the fluid model does not know.
    wan_ms, intra_ms = choose.choice([(0, 0), (3, 0), (3, 1), (20, 1)])
    names = [f"dc{number}" for number in range(datacenters)]
    limits = Limits(
        choose.choice([None, 100 * MBIT, 150 * MBIT]),
        choose.choice([None, 100 * MBIT, 230 * MBIT, 400 * MBIT]),
        choose.choice([None, 200 * MBIT, 300 * MBIT, 1000 * MBIT]),
        wan_ms * 10**6,
        intra_ms * 10**6,
    )
    topology: dict[str, Any] = {
        "datacenters": [
            {"name": name, "hosts": -(-stages * pipelines // gpus), "gpus_per_host": gpus} for name in names
        ],
        "intra": {"latency": f"{limits.intra_ns}ns", "rate": _rate(limits.port_bps)},
    }
    if datacenters > 1:
        pair = {} if limits.pair_bps is None else {"node_pair_rate": _rate(limits.pair_bps)}
        topology["wan"] = {"latency": f"{limits.wan_ns}ns", "rate": _rate(limits.trunk_bps), **pair}
    alike = choose.random() < 0.5

    def drawn(least: int, most: int) -> int:
        return least if alike else choose.randint(least, most)

    document = {
        "topology": topology,
        "compute": {
            "forward": [f"{drawn(5, 20)}ms" for _ in range(stages)],
            "backward": [f"{drawn(5, 30)}ms" for _ in range(stages)],
            "recompute": "0ms",
            "activation": [f"{drawn(150, 500)}KB" for _ in range(stages - 1)],
            "gradient": choose.choice(["1KB", "400KB", "1500KB"]),
        },
        "training": {
            "stages": stages,
            "pipelines": pipelines,
            "microbatches": choose.randint(1, 3),
            "iterations": 1,
            "warmup": 0,
        },
        "engine": "simulate",
        "variants": [
            {
                "name": "any",
                "schedule": "gpipe",
                "transport": {"model": "ideal", "connections": 1},
                "placement": [[choose.choice(names) for _ in range(stages)] for _ in range(pipelines)],
            }
        ],
    }
    return document, limits


def _rate(rate_bps: int | None) -> str:
    return "unlimited" if rate_bps is None else f"{rate_bps}bit"


def ends_ns(simulation: Simulation, stages: int, microbatches: int) -> dict[SpanEnd, int]:
    """Return when each span of ``KINDS`` ends. Received gradients have microbatches after those of activations."""
    spans, found = simulation.spans, {}
    for code, kind in KINDS.items():
        for span in np.flatnonzero(spans.kind == code).tolist():
            rank, microbatch = int(spans.rank[span]), int(spans.microbatch[span])
            if kind == "receive" and int(spans.peer[span]) > rank:
                microbatch += microbatches
            found[kind, rank, microbatch] = int(spans.end_ns[span])
    return found


@pytest.mark.parametrize("first", range(0, CASES, BATCH))
def test_every_span_ends_as_on_a_fluid_network(first: int) -> None:
    for seed in range(first, first + BATCH):
        document, limits = case(seed)
        point = sweep_point(document)
        (variant,) = point.variants
        simulation = simulate_variant(point.topology, variant, 1, effects=IDEAL)
        found = ends_ns(simulation, variant.placement.stages, variant.microbatches)
        expected = FluidTraining(variant, limits).run()
        assert found.keys() == expected.keys(), seed
        worst_ns = max(abs(found[span] - end_ns) for span, end_ns in expected.items())
        assert worst_ns <= MOST_DEVIATION_NS, (seed, float(worst_ns))
