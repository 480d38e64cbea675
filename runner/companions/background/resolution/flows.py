"""Resolve the section ``background``: check each flow, and work out its hosts and what it offers."""

from collections.abc import Mapping, Sequence

from wanbed.ground.strict_model import InputError
from wanbed.runner.companions.background.resolution.flow import BackgroundFlow
from wanbed.runner.companions.background.spec import BackgroundSpec
from wanbed.runner.experiment.sweep_points import SweepPointSpec
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.connection_count import tcp_settings
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import StagePlace
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.trainings.program.resolution.program_variant import ProgramVariant
from wanbed.testbed.network.links.over_time.condition_trace import ConditionTrace
from wanbed.testbed.network.topology import Topology, flow_host
from wanbed.workloads.background.offered_rate import OfferedRate, OnOffTimes


def resolve_background(point: SweepPointSpec, variants: Sequence[ResolvedVariant]) -> tuple[BackgroundFlow, ...]:
    """Return the flows of a sweep point. Raise InputError for what cannot run, LocatedError for a trace."""
    spec, topology = point.spec, point.topology
    if not spec.background:
        return ()
    for position, variant in enumerate(variants):
        if not isinstance(variant, PipelineVariant) or not variant.follows_own_schedule:
            field = "program" if isinstance(variant, ProgramVariant) else "schedule"
            raise InputError(
                f"variants.{position}.{field}: background runs beside trainings by a schedule of wanbed's ranks "
                "only: leave the variant out, or leave background out"
            )
    found = []
    for position, flow in enumerate(spec.background):
        _check_has_a_rate(position, flow, topology)
        places = [
            StagePlace(-1 - position, 0, topology.host(flow_host(name, position)), 0)
            for name in (flow.source, flow.destination)
        ]
        written = {"connections": flow.connections, "window": flow.window, "congestion": flow.congestion}
        transport = TransportSpec().model_copy(update=written)
        found.append(
            BackgroundFlow(
                flow.name,
                flow.kind,
                flow.protocol == "tcp",
                flow.is_synthetic,
                (places[0], places[1]),
                transport,
                tcp_settings(transport),
                _offered(flow, spec.seed, point.offered),
            )
        )
    return tuple(found)


def _check_has_a_rate(position: int, flow: BackgroundSpec, topology: Topology) -> None:
    """Raise InputError for a flow that takes all it gets where there is no end to it."""
    if flow.rate is not None or flow.trace is not None:
        return
    link = topology.conditions(flow.source, flow.destination)
    if link.pair_rate_bps is None and topology.intra_rate_bps is None:
        raise InputError(
            f"background.{position}.rate: from {flow.source} to {flow.destination} nothing limits a flow without one: "
            "give it a rate, or topology.wan a rate"
        )


def _offered(flow: BackgroundSpec, seed: int, traces: Mapping[str, ConditionTrace]) -> OfferedRate:
    if flow.trace is not None:
        trace = traces[flow.trace]
        period_ns = trace.period_ns(flow.loop)
        rows = trace.within(period_ns)
        if not rows[-1].values:
            raise trace.fault(rows[-1], "rate: it is empty: give a rate, or 0bit for none")
        return OfferedRate(tuple((row.at_ns, row.values["rate"]) for row in rows), period_ns)
    on_off = None
    if flow.on_off is not None:
        written = flow.on_off
        on_off = OnOffTimes(written.burst, written.pause, written.times == "exponential", f"{seed} {flow.name}")
    return OfferedRate(((0, flow.rate),), on_off=on_off)
