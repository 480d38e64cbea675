"""Stands in for the simulator's core: no GPU waits for the network, and every span follows from a formula."""

from typing import Any

import numpy as np

from wanbed.results.records.span_columns import SpanColumns
from wanbed.results.records.span_log import SPAN_KINDS
from wanbed.runner.resolve.pipeline_variant import in_pipelines
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.simulator.deadlock import DeadlockError
from wanbed.runner.simulator.simulation import NO_PEER, HostTraffic, Simulation
from wanbed.testbed.network.topology import Topology

DEADLOCKING = "deadlocks"
"""The name of a variant that never ends."""


def simulate_on_paper(topology: Topology, variant: ResolvedVariant, iterations: int, **_: Any) -> Simulation:
    """Every stage computes its microbatches one after the other; each is sent while the next one is computed."""
    if variant.name == DEADLOCKING:
        raise DeadlockError("stage 1 waits for the activation of microbatch 0; last: forward 0 at stage 0")
    variant = in_pipelines(variant)
    work, stages, rows = variant.work, variant.placement.stages, []
    latency_ns = topology.wan[0].conditions.latency_ns if topology.wan else 0
    kind = {name: SPAN_KINDS.index(name) for name in SPAN_KINDS}
    iteration_ns = 2 * variant.microbatches * (max(work.forward_ns) + max(work.backward_ns)) + 2 * stages * latency_ns
    for rank, place in enumerate(variant.placement.places):
        stage = place.stage
        for iteration in range(iterations):
            now_ns = iteration * iteration_ns + stage * latency_ns
            for name, duration_ns, step in (("forward", work.forward_ns, 1), ("backward", work.backward_ns, -1)):
                for microbatch in range(variant.microbatches):
                    end_ns = now_ns + duration_ns[stage]
                    rows.append((rank, kind[name], iteration, microbatch, now_ns, end_ns, 0, NO_PEER))
                    for transfer, other in (("send", stage + step), ("receive", stage - step)):
                        if 0 <= other < stages:
                            size_bytes = work.activation_bytes[min(stage, other)]
                            peer = rank + other - stage
                            span = (now_ns, end_ns, size_bytes, peer)
                            rows.append((rank, kind[transfer], iteration, microbatch, *span))
                    now_ns = end_ns
    columns = SpanColumns.of_training(np.array(rows, np.int64))
    return Simulation(columns, _traffic(variant, columns), {("east-0", "west-0"): 2})


def _traffic(variant: ResolvedVariant, spans: SpanColumns) -> tuple[HostTraffic, ...]:
    places, found = variant.placement.places, []
    sent = spans.kind == SPAN_KINDS.index("send")
    for rank, peer in sorted(set(zip(spans.rank[sent].tolist(), spans.peer[sent].tolist(), strict=True))):
        if places[rank].datacenter != places[peer].datacenter:
            own = sent & (spans.rank == rank) & (spans.peer == peer)
            times_ns = np.array([0, int(spans.end_ns[own].max())])
            counts = np.array([0, int(spans.size_bytes[own].sum())])
            found.append(HostTraffic(places[rank].host.name, places[peer].host.name, times_ns, counts))
    return tuple(found)
