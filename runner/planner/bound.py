"""Compute a lower bound on the period of a candidate without simulating it.

The cycles are those of ``wanbed.runner.bound.pipeline_chains``, of one pipeline: all pipelines of a candidate are
alike. A direction of a WAN link is busy with ``M`` transfers over the node pair of each pipeline (C pipelines that
share C node pairs load each of them equally), and with the transfers of all pipelines over the trunk. These count one
after the other in a cycle only if pipelines wait for each other in the all-reduce of every stage, and a cycle that they
decide has the all-reduce of no pipeline whole: a replica that begins early has sent half of it before the last one
begins.

A connection sends one window at once and one more in each round trip, so ``bytes`` over n connections take at least
``(bytes / (n x window) - 1) x RTT``. Whatever makes real iterations longer (headers, slow start, scatter and gather,
turns, hosts that share a node pair) is left out, so the bound holds for any simulation. Of an all-reduce in buckets
that overlaps with the last backward, only what that backward cannot hide counts: nothing is summed before its first
bucket, nor the last bucket before its end.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple

from wanbed.runner.bound.lower_bound import BELOW
from wanbed.runner.bound.pipeline_chains import BoundaryWay, Hop, PipelineChains, StageTimes
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.planner.search_space import Candidate, Runs
from wanbed.runner.resolve.stage_costs import StageCosts
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.transport.ring_round import bucket_count


class IterationBound:
    """Lower bounds for all candidates of one variant on one network.

    ``work`` has the stage costs of several pipelines. ``splits_backward`` is None if every plan decides anew whether
    backwards are split: then the bounds hold for both. With ``windows`` they account for TCP's windows.
    """

    def __init__(
        self,
        topology: Topology,
        work: StageCosts,
        transport: TransportSpec,
        microbatches: int,
        memory_bound: int | tuple[int, ...] | None = None,
        *,
        splits_backward: bool | None,
        windows: bool = True,
    ) -> None:
        self._work, self._microbatches = work, microbatches
        self._shares = transport.sharing == "temporal"
        self._bucket_bytes = transport.bucket if transport.sums_in_buckets else None
        self._connection_bits = (
            8.0 * transport.connections * transport.window if windows and transport.connections != "auto" else None
        )
        self._topology = topology
        self._largest_host = {entry.name: max(host.gpus for host in entry.hosts) for entry in topology.datacenters}
        self._largest_anywhere = max(self._largest_host.values())
        self._intra_latency_ns, self._intra_bps = topology.intra_latency_ns, topology.intra_rate_bps
        self._least_gradient_bytes = min(work.gradient_bytes, default=0)
        backwards_ns = [_backward_ns(work, stage, splits=splits_backward) for stage in range(work.stages)]
        self._last_ns = [each.last_ns for each in backwards_ns]
        self._times = [
            StageTimes(
                work.forward_ns[stage],
                work.recompute_ns[stage],
                each.gradient_ns,
                each.weight_ns,
                _most_held(memory_bound, stage, microbatches),
            )
            for stage, each in enumerate(backwards_ns)
        ]

    def of(self, candidate: Candidate) -> float:
        """Return a lower bound on the candidate's period, in nanoseconds."""
        return self.of_first(candidate.pipelines, candidate.runs, frozenset(), candidate.pipelines_per_cell)

    def of_first(
        self, pipelines: int, runs: Runs, free: frozenset[str], pipelines_per_cell: int | None = None
    ) -> float:
        """Return a lower bound (ns) that holds however the stages after those of ``runs`` are placed.

        The later stages may be placed in the datacenters ``free``. DP-cells are as large as possible unless
        ``pipelines_per_cell`` is given.
        """
        parts = 1 if not self._shares else pipelines_per_cell or pipelines
        homes = [name for name, stages in runs for _ in range(stages)]
        sums_ns = [
            self._sums_ns(stage, homes[stage] if stage < len(homes) else None, pipelines)
            for stage in range(self._work.stages)
        ]
        alone, together = (self._hops(homes, free, parts, loads) for loads in (1, pipelines))
        found = [way.busy_ns for hop in together for way in (hop.there, hop.back)]
        found += self._cycles_ns(alone, [sum_ns for _, sum_ns in sums_ns])
        # With fewer bytes than replicas some parts are empty, and nobody waits for those.
        if together != alone and self._least_gradient_bytes >= pipelines:
            found += self._cycles_ns(together, [half_ns for half_ns, _ in sums_ns])
        return max(found) * BELOW

    def _cycles_ns(self, hops: list[Hop], sums_ns: Sequence[float]) -> list[float]:
        """Return the time of each stage from its first forward to the end of its optimizer step."""
        cycles = PipelineChains(self._times, hops, self._microbatches).cycles()
        return [
            chain.end_ns + sum_ns + optimizer_ns
            for chain, sum_ns, optimizer_ns in zip(cycles, sums_ns, self._work.optimizer_ns, strict=True)
        ]

    def _hops(self, homes: Sequence[str], free: frozenset[str], parts: int, loads: int) -> list[Hop]:
        """Return all boundaries, their trunks loaded by so many pipelines."""
        hops = [self._hop(one, other, boundary, loads, parts) for boundary, (one, other) in enumerate(pairwise(homes))]
        if homes and len(homes) < self._work.stages:
            others = [self._hop(homes[-1], other, len(homes) - 1, loads, parts) for other in sorted(free)]
            hops.append(Hop(_least([hop.there for hop in others]), _least([hop.back for hop in others])))
        return hops + [Hop()] * (self._work.stages - 1 - len(hops))

    def _hop(self, one: str, other: str, boundary: int, loads: int, parts: int) -> Hop:
        bits = 8.0 * self._work.activation_bytes[boundary]
        if one == other:
            if self._largest_host[one] > 1:
                return Hop()
            transfer_ns = _duration_ns(bits, self._intra_bps)
            way = BoundaryWay(self._intra_latency_ns, transfer_ns, self._microbatches * transfer_ns)
            return Hop(way, way)
        links = self._topology.conditions(one, other), self._topology.conditions(other, one)
        latencies_ns = [link.latency_ns - link.impairments.delay_spread_ns for link in links]
        rtt_ns = sum(latencies_ns)
        all_bits = bits * self._microbatches
        there, back = (
            BoundaryWay(
                latency_ns,
                self._pair_ns(bits / parts, link.pair_rate_bps, rtt_ns),
                max(
                    self._pair_ns(all_bits, link.pair_rate_bps, rtt_ns),
                    _duration_ns(all_bits * loads, link.rate_bps),
                ),
            )
            for link, latency_ns in zip(links, latencies_ns, strict=True)
        )
        return Hop(there, back)

    def _pair_ns(self, bits: float, rate_bps: int | None, rtt_ns: float) -> float:
        rounds = bits / self._connection_bits - 1 if self._connection_bits else 0.0
        return max(_duration_ns(bits, rate_bps), rounds * rtt_ns)

    def _sums_ns(self, stage: int, home: str | None, pipelines: int) -> tuple[float, float]:
        """Return the least time of a stage's all-reduce after its last computation: of half of its bytes, and of all.

        A ring sends 2 (P - 1) parts of 1/P of the gradients over each port.
        """
        if pipelines <= (self._largest_anywhere if home is None else self._largest_host[home]):
            return 0.0, 0.0
        size_bytes = self._work.gradient_bytes[stage]
        buckets = 1 if self._bucket_bytes is None else bucket_count(size_bytes, self._bucket_bytes)
        part_bytes = size_bytes // buckets // pipelines
        hidden_ns = self._last_ns[stage] * (buckets - 1) / buckets
        half_ns, bucket_ns = (
            share * (pipelines - 1) * _duration_ns(8.0 * part_bytes, self._intra_bps) for share in (1, 2)
        )
        return max(half_ns, buckets * half_ns - hidden_ns), max(bucket_ns, buckets * bucket_ns - hidden_ns)


def _least(ways: list[BoundaryWay]) -> BoundaryWay:
    """Return the least of each figure over all ways."""
    return BoundaryWay(
        min(way.latency_ns for way in ways), min(way.transfer_ns for way in ways), min(way.busy_ns for way in ways)
    )


class _Backward(NamedTuple):
    """The least times of a backward's parts, the weight part 0 where it is whole, and its longest last action."""

    gradient_ns: int
    weight_ns: int
    last_ns: int


def _backward_ns(work: StageCosts, stage: int, *, splits: bool | None) -> _Backward:
    whole_ns, input_ns, weight_ns = (
        times_ns[stage] for times_ns in (work.backward_ns, work.backward_input_ns, work.backward_weight_ns)
    )
    if splits is None:
        gradient_ns = min(whole_ns, input_ns)
        return _Backward(gradient_ns, min(weight_ns, whole_ns - gradient_ns), max(whole_ns, weight_ns))
    return _Backward(input_ns, weight_ns, weight_ns) if splits else _Backward(whole_ns, 0, whole_ns)


def _most_held(memory_bound: int | tuple[int, ...] | None, stage: int, microbatches: int) -> int:
    bound = memory_bound[stage] if isinstance(memory_bound, tuple) else memory_bound
    return microbatches if bound is None else min(bound, microbatches)


def _duration_ns(bits: float, rate_bps: int | None) -> float:
    return 0.0 if rate_bps is None else bits * 1e9 / rate_bps


def tokens_per_s(pipelines: int, microbatches: int, context: int, iteration_ns: float) -> float:
    """Return tokens per second with a sequence of ``context`` tokens for each microbatch of each pipeline."""
    return pipelines * microbatches * context * 1e9 / iteration_ns if iteration_ns > 0 else inf
