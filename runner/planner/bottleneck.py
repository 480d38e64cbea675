"""Find what bounds the iteration of a simulated candidate: its busiest GPU or link, or what that GPU waits for.

All shares are of the time after warm-up:

- a GPU is busy while it computes;
- a direction of a WAN link is busy for ``bytes sent / (capacity x time)``, headers included. Its capacity is the rate
  of its trunk, for the bytes of all node pairs together; or that of one node pair, for the bytes of the busiest one.
  The latter is the smaller of its rate and of what its TCP windows let out, ``connections x window / RTT``.

The bottleneck is whatever is busiest. If that is busy for less than half the time, the iteration consists of waiting:
then the bottleneck is the longest wait of the busiest GPU, a cause of ``results.metrics.idle_causes``.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import numpy.typing as npt

from results.records.span_columns import SpanColumns
from results.records.span_log import COMPUTE_KINDS, SpanLogHeader
from results.records.trial_id import TrialId
from runner.resolve.resolved_variant import ResolvedVariant
from runner.simulator.simulation import KIND_CODES, Simulation
from runner.tcp.effects import effects_of
from runner.tcp.line import Line
from testbed.network.topology import Topology

Capacity = Literal["trunk", "node_pair", "windows"]

_MOSTLY = 0.5


@dataclass(frozen=True)
class GpuUse:
    """The GPU that computes for longest. ``waits`` has the share of each cause for which it is idle, the longest first.

    ``busy`` and ``waits`` add up to 1.
    """

    stage: int
    datacenter: str
    busy: float
    waits: Mapping[str, float]


@dataclass(frozen=True)
class LinkUse:
    """The busiest direction of a WAN link, by the ``capacity`` of which most is used."""

    source: str
    destination: str
    capacity: Capacity
    capacity_bps: float
    busy: float


@dataclass(frozen=True)
class Bottleneck:
    """What bounds an iteration. ``link`` is None if no WAN link that was used has a capacity."""

    gpu: GpuUse
    link: LinkUse | None

    @property
    def cause(self) -> str:
        """The bottleneck: ``link``, ``gpu``, or ``waits:`` and a cause of idle time."""
        link_busy = 0.0 if self.link is None else self.link.busy
        if max(link_busy, self.gpu.busy) < _MOSTLY:
            return f"waits:{next(iter(self.gpu.waits))}"
        return "link" if link_busy > self.gpu.busy else "gpu"


def bottleneck_of(topology: Topology, variant: ResolvedVariant, simulation: Simulation, warmup: int) -> Bottleneck:
    """Return what bounds the iterations after the first ``warmup`` of a simulated variant."""
    window_ns = simulation.windows_ns[warmup][0], simulation.windows_ns[-1][1]
    links = _links(topology, variant, simulation, window_ns)
    return Bottleneck(
        _busiest_gpu(variant, simulation.spans, window_ns), max(links, key=lambda link: link.busy, default=None)
    )


def _busiest_gpu(variant: ResolvedVariant, spans: SpanColumns, window_ns: tuple[int, int]) -> GpuUse:
    # They take a second to load, which a placement that nobody explains spares.
    import pandas as pd  # noqa: PLC0415

    from results.metrics.idle_causes import IDLE_CAUSES, idle_causes  # noqa: PLC0415
    from results.metrics.iterations import Window  # noqa: PLC0415
    from results.records.trial_columns import TrialSpans  # noqa: PLC0415

    places = variant.placement.places
    computes = np.isin(spans.kind, [KIND_CODES[kind] for kind in COMPUTE_KINDS]) & (spans.rank < len(places))
    lasting_ns = np.clip(spans.end_ns, *window_ns) - np.clip(spans.start_ns, *window_ns)
    busy_ns = np.bincount(spans.rank[computes], lasting_ns[computes], len(places))
    place = places[int(np.argmax(busy_ns))]
    owners = [
        SpanLogHeader(rank, each.host.name, each.datacenter, each.gpu, each.pipeline, each.stage)
        for rank, each in enumerate(places)
    ]
    first = place.pipeline * variant.placement.stages
    own = (spans.rank >= first) & (spans.rank < first + variant.placement.stages)
    pipeline = SpanColumns(*(getattr(spans, entry.name)[own] for entry in fields(SpanColumns)))
    tables = TrialSpans(owners, pipeline).tables(TrialId(0, variant.name, 0))
    causes = idle_causes(pd.concat([table.to_pandas() for table in tables]), Window(*window_ns))
    length_ns = window_ns[1] - window_ns[0]
    number = causes.index.get_loc((place.host.name, place.gpu))
    waits = {cause: float(causes[cause].to_numpy()[number]) / length_ns for cause in IDLE_CAUSES}
    longest_first = dict(sorted(waits.items(), key=lambda wait: -wait[1]))
    return GpuUse(place.stage, place.datacenter, float(busy_ns.max()) / length_ns, longest_first)


def _links(
    topology: Topology, variant: ResolvedVariant, simulation: Simulation, window_ns: tuple[int, int]
) -> Iterator[LinkUse]:
    """Yield the use of every direction of a link that something crossed and that has a capacity."""
    home = {host.name: host.datacenter for host in topology.hosts}
    length_s = (window_ns[1] - window_ns[0]) / 1e9
    on_trunk: dict[tuple[str, str], float] = defaultdict(float)
    for pair in simulation.traffic:
        ends = home[pair.source], home[pair.destination]
        bits = 8.0 * _sent_bytes(pair.times_ns, pair.wire_bytes, window_ns)
        on_trunk[ends] += bits
        hosts = pair.source, pair.destination
        connections = simulation.connections[hosts if hosts in simulation.connections else hosts[::-1]]
        for capacity, rate_bps in _pair_capacities(topology, variant, ends, connections):
            yield LinkUse(*ends, capacity, rate_bps, bits / (rate_bps * length_s))
    for ends, bits in on_trunk.items():
        trunk_bps = topology.conditions(*ends).rate_bps
        if trunk_bps is not None:
            yield LinkUse(*ends, "trunk", trunk_bps, bits / (trunk_bps * length_s))


def _sent_bytes(
    times_ns: npt.NDArray[np.int64], wire_bytes: npt.NDArray[np.int64], window_ns: tuple[int, int]
) -> float:
    before, after = np.interp(window_ns, times_ns, wire_bytes) if len(times_ns) else (0.0, 0.0)
    return float(after - before)


def _pair_capacities(
    topology: Topology, variant: ResolvedVariant, ends: tuple[str, str], connections: int
) -> Iterator[tuple[Capacity, float]]:
    effects, latency_ns = effects_of(variant.transport), topology.conditions(*ends).latency_ns
    rate_bps = topology.line_rate_bps(*ends)
    if rate_bps is not None:
        yield "node_pair", rate_bps
    if effects.window and latency_ns:
        let_out_bytes = Line(None, latency_ns, effects.headers).wire_bytes(connections * variant.tcp.in_flight_bytes)
        yield "windows", let_out_bytes * 8e9 / (2 * latency_ns)
