"""The result of a simulation as columns: the spans of all ranks, and the traffic over the WAN."""

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Protocol

import numpy as np
import numpy.typing as npt

from wanbed.results.records.span_columns import Column, SpanColumns
from wanbed.results.records.span_log import COMPUTE_KINDS, PREFILL, SPAN_KINDS
from wanbed.runner.companions.faults.spec import PlannedFault
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.tcp_effects import TcpEffects
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.bubbletea.request import RequestRecord

KIND_CODES: Mapping[str, int] = {kind: code for code, kind in enumerate(SPAN_KINDS)}
"""The code of each kind of span in ``SpanColumns.kind``."""

NO_PEER = -1


class HostTraffic:
    """The traffic from one host to a host of another datacenter."""

    def __init__(self, source: str, destination: str, times_ns: Column, wire_bytes: Column) -> None:
        self.source, self.destination = source, destination
        self._given = times_ns, wire_bytes

    def __repr__(self) -> str:
        """Return the two hosts."""
        return f"HostTraffic({self.source!r}, {self.destination!r})"

    def counts(self) -> tuple[Column, Column]:
        """Return ``times_ns`` and ``wire_bytes``."""
        return self._given

    @property
    def times_ns(self) -> Column:
        """All times at which a rate changed, ascending. There can be very many."""
        return self.counts()[0]

    @property
    def wire_bytes(self) -> Column:
        """The bytes sent since the start, headers included, at each of ``times_ns``; linear between two times."""
        return self.counts()[1]

    @property
    def last_ns(self) -> int:
        """The last of ``times_ns``, 0 if there is none."""
        return int(self.times_ns[-1]) if len(self.times_ns) else 0

    def sent_by(self, times_ns: Column) -> npt.NDArray[np.float64]:
        """Return the bytes sent by each of ``times_ns``."""
        if not len(self.times_ns):
            return np.zeros(len(times_ns))
        return np.interp(times_ns, self.times_ns, self.wire_bytes, left=0)


@dataclass(frozen=True)
class FlowTraffic:
    """The traffic of the flow of that name in the background: all that it sent, and the payload that was received."""

    name: str
    sent: HostTraffic
    received: HostTraffic


@dataclass(frozen=True)
class SimulatedPrefill:
    """The prefill that ran beside training.

    ``rows`` has nine numbers for each span: those of ``Training.rows``, then the request. ``records`` has all requests
    that arrived, ``output_tokens`` their output tokens by request number. ``deadline_overruns`` and ``overrun_ns``
    count training's waits for prefill. ``margins_ns`` are the bubble margins at the end, of the GPUs that train.
    """

    rows: "array[int]"
    records: tuple[RequestRecord, ...]
    output_tokens: Mapping[int, int]
    deadline_overruns: int
    overrun_ns: int
    margins_ns: tuple[int, ...]


@dataclass(slots=True)
class SimulatedFailure:
    """A rank that was killed: when, when the one that gathers knew, and when it began again; None for never."""

    fault: PlannedFault
    rank: int
    at_ns: int
    known_ns: int | None = None
    joined_ns: int | None = None


@dataclass(frozen=True)
class Simulation:
    """One simulated trial. Times are integer nanoseconds since its start.

    ``spans`` are ordered by rank, iteration, start and end. Their kinds are ``KIND_CODES``; GPUs of a prefill pool are
    numbered after the training ranks. ``connections`` has the number of TCP connections of each pair of hosts, the host
    of the lower rank first, as in an emulated trial. Where ``parts`` is more than 1, ``spans`` has only the first of so
    many equal parts, whose ranks are the lowest; everything else is of all parts. Of more ``copies`` it has
    that many parts one after the other, each with the times of the first. ``while_all_ran_ns`` is when the first of
    several jobs had done its last iteration, None of a single one. ``traffic`` is training's alone; ``background`` has
    that of flows that train nothing. Where replicas synchronise over a star, ``sums`` has for each sum how many parts
    it is of and how many of these were late, ``dropped`` the number of parts that came too late for any, and
    ``failures`` the replicas that were killed.
    """

    spans: SpanColumns
    traffic: tuple[HostTraffic, ...]
    connections: Mapping[tuple[str, str], int]
    prefill: SimulatedPrefill | None = None
    parts: int = 1
    copies: int = 1
    while_all_ran_ns: int | None = None
    background: tuple[FlowTraffic, ...] = ()
    sums: tuple[tuple[int, int], ...] = ()
    dropped: int = 0
    failures: tuple[SimulatedFailure, ...] = ()

    @property
    def traffic_of_part(self) -> tuple[HostTraffic, ...]:
        """The traffic of the first of equal parts; that of each part that follows differs by its hosts alone."""
        return self.traffic[: len(self.traffic) // (self.parts * self.copies)]

    @cached_property
    def windows_ns(self) -> list[tuple[int, int]]:
        """The window of each iteration: from the first start of its work and messages on any GPU to their last end."""
        spans = self.spans
        work = spans.kind != KIND_CODES[PREFILL]
        iteration, start_ns, end_ns = spans.iteration[work], spans.start_ns[work], spans.end_ns[work]
        count = int(iteration.max()) + 1 if len(iteration) else 0
        begins, ends = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
        np.minimum.at(begins, iteration, start_ns)
        np.maximum.at(ends, iteration, end_ns)
        return list(zip(begins.tolist(), ends.tolist(), strict=True))

    @cached_property
    def _ends_ns(self) -> list[int]:
        """When each iteration that counts ended, or one before it if that is later.

        Beside other jobs those count that ended while all of them ran.
        """
        ends_ns = accumulate((end_ns for _, end_ns in self.windows_ns), max)
        until_ns = self.while_all_ran_ns
        return [end_ns for end_ns in ends_ns if until_ns is None or end_ns <= until_ns]

    def measured_iterations(self, warmup: int) -> int:
        """Return how many iterations are measured: those after the first ``warmup``, and after the first of all.

        The period of the first is not known. Beside other jobs only those count that ended while all of them ran.
        """
        return max(len(self._ends_ns) - max(warmup, 1), 0)

    def measured_ns(self, warmup: int) -> tuple[int, int]:
        """Return when the last iteration before the measured ones ended, and when the last one did.

        At least one must be measured.
        """
        return self._ends_ns[max(warmup, 1) - 1], self._ends_ns[-1]

    def iteration_time_ns(self, warmup: int) -> float:
        """Return the period of training: the measured time by the number of iterations that end in it."""
        begin_ns, end_ns = self.measured_ns(warmup)
        return (end_ns - begin_ns) / self.measured_iterations(warmup)

    def utilization(self, ranks: int, warmup: int, *, with_prefill: bool = False) -> float:
        """Return the share of the measured time that the GPUs of ranks 0 to ``ranks`` - 1 work on its iterations.

        With prefill, what they prefill in that time counts too.
        """
        begin_ns, end_ns = self.measured_ns(warmup)
        spans = self.spans
        own = spans.rank < ranks
        trains = own & np.isin(spans.kind, [KIND_CODES[kind] for kind in COMPUTE_KINDS])
        trains &= (spans.iteration >= max(warmup, 1)) & (spans.iteration < len(self._ends_ns))
        busy_ns = int((spans.end_ns - spans.start_ns)[trains].sum())
        if with_prefill:
            clipped = np.clip(spans.end_ns, begin_ns, end_ns) - np.clip(spans.start_ns, begin_ns, end_ns)
            busy_ns += int(clipped[own & (spans.kind == KIND_CODES[PREFILL])].sum())
        return busy_ns / (ranks * (end_ns - begin_ns))

    def idle_intervals(self, rank: int, begin_ns: int, end_ns: int) -> list[tuple[int, int]]:
        """Return the bubbles of a rank's GPU between two times, in order: when it does not compute for training."""
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
    """The type of ``wanbed.runner.simulator.variant_simulation.simulate_variant`` and its substitutes."""

    def __call__(
        self,
        topology: Topology,
        variant: ResolvedVariant,
        iterations: int,
        *,
        effects: TcpEffects | None = ...,
        dilation: float = ...,
        pulse: Callable[[float], None] | None = ...,
    ) -> Simulation:
        """Simulate one trial of the variant. ``pulse`` is told the share that is done, several times a second."""
