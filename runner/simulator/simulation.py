"""Hold the result of a simulation: every span of every rank, and what crossed the WAN, as columns."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from results.records.span_columns import Column, SpanColumns
from results.records.span_log import COMPUTE_KINDS, PREFILL, SPAN_KINDS
from runner.resolve.resolved_variant import ResolvedVariant
from runner.tcp.effects import TcpEffects
from testbed.network.topology import Topology
from workloads.prefill.control.outcome import RequestRecord

KIND_CODES: Mapping[str, int] = {kind: code for code, kind in enumerate(SPAN_KINDS)}
"""The number that stands for a kind of span in ``SpanColumns.kind``."""

NO_PEER = -1


@dataclass(frozen=True)
class WanTraffic:
    """The traffic from one host to a host of another datacenter.

    At ``times_ns``, ascending, ``wire_bytes`` had been sent with all headers since the start; in between the count
    grows evenly.
    """

    source: str
    destination: str
    times_ns: Column
    wire_bytes: Column


@dataclass(frozen=True)
class SimulatedPrefill:
    """The prefill that went on beside training.

    ``rows`` has nine numbers a span, those of ``Training.rows`` and the request; ``records`` has every request that
    came, ``output_tokens`` by their numbers. ``margins_ns`` are those of the GPUs that train, at the end.
    """

    rows: "array[int]"
    records: tuple[RequestRecord, ...]
    output_tokens: Mapping[int, int]
    deadline_overruns: int
    overrun_ns: int
    margins_ns: tuple[int, ...]


@dataclass(frozen=True)
class Simulation:
    """One simulated trial. Times are integer nanoseconds since its start.

    ``spans`` are ordered by rank, iteration, start and end; their kinds are ``KIND_CODES``, and the ranks those that
    train, then the numbers of a pool's GPUs. ``connections`` holds how many TCP connections join two hosts, lower rank
    first, as an emulated trial does.
    """

    spans: SpanColumns
    traffic: tuple[WanTraffic, ...]
    connections: Mapping[tuple[str, str], int]
    prefill: SimulatedPrefill | None = None

    @cached_property
    def windows_ns(self) -> list[tuple[int, int]]:
        """The begin and end of every iteration: of its first and its last computation or all-reduce, on any GPU."""
        spans = self.spans
        work = np.isin(spans.kind, [KIND_CODES[kind] for kind in (*COMPUTE_KINDS, "all_reduce")])
        iteration, start_ns, end_ns = spans.iteration[work], spans.start_ns[work], spans.end_ns[work]
        count = int(iteration.max()) + 1 if len(iteration) else 0
        begins, ends = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
        np.minimum.at(begins, iteration, start_ns)
        np.maximum.at(ends, iteration, end_ns)
        return list(zip(begins.tolist(), ends.tolist(), strict=True))

    def iteration_time_ns(self, warmup: int) -> float:
        """Return the median length of the iterations after the first ``warmup``, which must not be all."""
        return float(np.median([end_ns - start_ns for start_ns, end_ns in self.windows_ns[warmup:]]))

    def utilization(self, ranks: int, warmup: int, *, with_prefill: bool = False) -> float:
        """Return the share of the time after warm-up that the GPUs of ranks 0 to ``ranks`` - 1 compute, their mean."""
        begin_ns, end_ns = self.windows_ns[warmup][0], self.windows_ns[-1][1]
        spans = self.spans
        kinds = (*COMPUTE_KINDS, PREFILL) if with_prefill else COMPUTE_KINDS
        computes = np.isin(spans.kind, [KIND_CODES[kind] for kind in kinds]) & (spans.rank < ranks)
        clipped = np.clip(spans.end_ns, begin_ns, end_ns) - np.clip(spans.start_ns, begin_ns, end_ns)
        return float(clipped[computes].sum() / (ranks * (end_ns - begin_ns)))

    def idle_intervals(self, rank: int, begin_ns: int, end_ns: int) -> list[tuple[int, int]]:
        """Return when that rank's GPU computes nothing between two times: its bubbles, in order."""
        spans = self.spans
        own = (spans.rank == rank) & np.isin(spans.kind, [KIND_CODES[kind] for kind in COMPUTE_KINDS])
        idle, free_ns = [], begin_ns
        for start_ns, stop_ns in sorted(zip(spans.start_ns[own].tolist(), spans.end_ns[own].tolist(), strict=True)):
            if stop_ns <= begin_ns or start_ns >= end_ns:
                continue
            if start_ns > free_ns:
                idle.append((free_ns, start_ns))
            free_ns = max(free_ns, stop_ns)
        if free_ns < end_ns:
            idle.append((free_ns, end_ns))
        return idle


class Simulate(Protocol):
    """The type of ``runner.simulator.variant_simulation.simulate_variant``, and of what stands in its place."""

    def __call__(
        self,
        topology: Topology,
        variant: ResolvedVariant,
        iterations: int,
        *,
        effects: TcpEffects | None = ...,
        dilation: float = ...,
    ) -> Simulation:
        """Simulate one trial of the variant."""
