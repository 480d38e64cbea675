"""Compute a lower bound on the iteration time of a candidate without simulating it.

A microbatch visits every stage and every link twice, and a GPU or a link does one thing at a time. So for each of them,
an iteration lasts at least until the first work can reach it, plus all its work, plus what must follow the last work:

- for a GPU: ``M x (forward + recompute + backward)``, then the last gradient's way back to stage 0, with the
  all-reduces and optimizer steps of the stages on that way;
- for a direction of a WAN link: ``M`` transfers over the node pair of each pipeline (C pipelines that share C node
  pairs load each of them equally), and the transfers of all pipelines over the trunk; the last one starts a round trip.

A connection sends one window at once and one more in each round trip, so ``bytes`` over n connections take at least
``(bytes / (n x window) - 1) x RTT``. Whatever makes real iterations longer (headers, slow start, scatter and gather,
turns, memory bounds, hosts that share a node pair) is left out, so the bound holds for any simulation.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import inf

from runner.experiment.transport_spec import TransportSpec
from runner.planner.candidate import Candidate, Runs
from runner.resolve.stage_costs import StageCosts
from testbed.network.topology import Topology

_BELOW = 1 - 1e-9
"""A factor that compensates for rounding errors of floating-point sums."""


@dataclass(frozen=True)
class _Hop:
    """One boundary in nanoseconds: latency, time of one transfer, and time of all transfers in one direction.

    Each is the lesser one of the two directions.
    """

    latency_ns: float = 0.0
    transfer_ns: float = 0.0
    busy_ns: float = 0.0

    @property
    def pass_ns(self) -> float:
        """The time from the end of one stage's computation to the earliest start of the next one's."""
        return self.latency_ns + self.transfer_ns


class IterationBound:
    """Lower bounds for all candidates of one variant on one network.

    ``work`` has the stage costs of several pipelines. With ``windows`` the bounds account for TCP's windows.
    """

    def __init__(
        self,
        topology: Topology,
        work: StageCosts,
        transport: TransportSpec,
        microbatches: int,
        *,
        last_stage_recomputes: bool,
        splits_backward: bool,
        windows: bool = True,
    ) -> None:
        self._work, self._microbatches = work, microbatches
        self._shares = transport.sharing == "temporal"
        self._connection_bits = (
            8.0 * transport.connections * transport.window if windows and transport.connections != "auto" else None
        )
        self._topology = topology
        self._largest_host = {entry.name: max(host.gpus for host in entry.hosts) for entry in topology.datacenters}
        self._largest_anywhere = max(self._largest_host.values())
        self._intra_latency_ns, self._intra_bps = topology.intra_latency_ns, topology.intra_rate_bps
        stages = range(work.stages)
        self._weight_ns = work.backward_weight_ns if splits_backward else (0,) * work.stages
        self._gradient_ns = work.backward_input_ns if splits_backward else work.backward_ns
        recompute_ns = [
            work.recompute_ns[stage] if last_stage_recomputes or stage < work.stages - 1 else 0 for stage in stages
        ]
        self._busy_ns = [
            microbatches * (work.forward_ns[stage] + recompute_ns[stage] + self._gradient_ns[stage]) for stage in stages
        ]

    def of(self, candidate: Candidate) -> float:
        """Return a lower bound on the candidate's iteration time, in nanoseconds."""
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
        hops = [
            self._hop(one, other, boundary, pipelines, parts) for boundary, (one, other) in enumerate(pairwise(homes))
        ]
        if homes and len(homes) < self._work.stages:
            hops.append(self._least_hop(homes[-1], free, len(homes) - 1, pipelines, parts))
        hops += [_Hop()] * (self._work.stages - 1 - len(hops))
        sums_ns = [
            self._sum_ns(stage, homes[stage] if stage < len(homes) else None, pipelines)
            + self._work.optimizer_ns[stage]
            for stage in range(self._work.stages)
        ]
        return self._longest_ns(hops, sums_ns) * _BELOW

    def _longest_ns(self, hops: list[_Hop], sums_ns: list[float]) -> float:
        work, last = self._work, self._work.stages - 1
        reach_ns = [0.0]
        for stage in range(last):
            reach_ns.append(reach_ns[stage] + work.forward_ns[stage] + hops[stage].pass_ns)
        after_ns = [self._weight_ns[0] + sums_ns[0]]
        for stage in range(1, last + 1):
            back_ns = hops[stage - 1].pass_ns + self._gradient_ns[stage - 1] + after_ns[stage - 1]
            after_ns.append(max(self._weight_ns[stage] + sums_ns[stage], back_ns))
        longest_ns = max(
            reach_ns[stage]
            + self._busy_ns[stage]
            + max(after_ns[stage], self._microbatches * self._weight_ns[stage] + sums_ns[stage])
            for stage in range(last + 1)
        )
        beyond_ns = 0.0
        for boundary in reversed(range(last)):
            hop = hops[boundary]
            beyond_ns += work.forward_ns[boundary + 1] + self._gradient_ns[boundary + 1]
            round_trip_ns = reach_ns[boundary] + work.forward_ns[boundary] + hop.latency_ns + beyond_ns + hop.pass_ns
            round_trip_ns += self._gradient_ns[boundary] + after_ns[boundary]
            longest_ns = max(longest_ns, round_trip_ns + max(hop.busy_ns, hop.transfer_ns))
            beyond_ns += 2 * hop.pass_ns
        return longest_ns

    def _least_hop(self, one: str, free: frozenset[str], boundary: int, pipelines: int, parts: int) -> _Hop:
        hops = [self._hop(one, other, boundary, pipelines, parts) for other in sorted(free)]
        return _Hop(
            min(hop.latency_ns for hop in hops),
            min(hop.transfer_ns for hop in hops),
            min(hop.busy_ns for hop in hops),
        )

    def _hop(self, one: str, other: str, boundary: int, pipelines: int, parts: int) -> _Hop:
        bits = 8.0 * self._work.activation_bytes[boundary]
        if one == other:
            if self._largest_host[one] > 1:
                return _Hop()
            transfer_ns = _duration_ns(bits, self._intra_bps)
            return _Hop(self._intra_latency_ns, transfer_ns, self._microbatches * transfer_ns)
        ways = self._topology.conditions(one, other), self._topology.conditions(other, one)
        latencies_ns = [way.latency_ns - way.impairments.delay_spread_ns for way in ways]
        rtt_ns = sum(latencies_ns)
        all_bits = bits * self._microbatches
        return _Hop(
            min(latencies_ns),
            min(self._pair_ns(bits / parts, way.pair_rate_bps, rtt_ns) for way in ways),
            min(
                max(
                    self._pair_ns(all_bits, way.pair_rate_bps, rtt_ns),
                    _duration_ns(all_bits * pipelines, way.rate_bps),
                )
                for way in ways
            ),
        )

    def _pair_ns(self, bits: float, rate_bps: int | None, rtt_ns: float) -> float:
        rounds = bits / self._connection_bits - 1 if self._connection_bits else 0.0
        return max(_duration_ns(bits, rate_bps), rounds * rtt_ns)

    def _sum_ns(self, stage: int, home: str | None, pipelines: int) -> float:
        """Return the least time of a stage's all-reduce: a ring sends 2 (P - 1) parts of 1/P of it over each port."""
        if pipelines <= (self._largest_anywhere if home is None else self._largest_host[home]):
            return 0.0
        part_bytes = self._work.gradient_bytes[stage] // pipelines
        return 2 * (pipelines - 1) * _duration_ns(8.0 * part_bytes, self._intra_bps)


def _duration_ns(bits: float, rate_bps: int | None) -> float:
    return 0.0 if rate_bps is None else bits * 1e9 / rate_bps


def tokens_per_s(pipelines: int, microbatches: int, context: int, iteration_ns: float) -> float:
    """Return tokens per second with a sequence of ``context`` tokens for each microbatch of each pipeline."""
    return pipelines * microbatches * context * 1e9 / iteration_ns if iteration_ns > 0 else inf
