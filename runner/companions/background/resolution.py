"""Resolve the section ``background``: check each flow, and work out its hosts and what it offers."""

from collections.abc import Iterator, Sequence

from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import Exclusion
from wanbed.runner.companions.background.spec import BackgroundSpec
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.sweep import SweepPointSpec
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.connections import tcp_settings
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import StagePlace
from wanbed.runner.resolve.resolved_variant import BackgroundFlow, ResolvedVariant
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.testbed.network.topology import flow_host
from wanbed.workloads.background_flows.flow import OfferedRate, OnOffTimes


def background_refusals(spec: ExperimentSpec, variants: Sequence[ResolvedVariant]) -> Iterator[Exclusion]:
    """Yield the variants that nothing runs beside in the background."""
    for position, variant in enumerate(variants if spec.background else ()):
        yield Exclusion(
            f"variants.{position}.{'program' if isinstance(variant, ProgramVariant) else 'schedule'}",
            "background runs beside trainings by a schedule of wanbed's ranks only",
            when=not isinstance(variant, PipelineVariant) or not variant.follows_own_schedule,
            leave="the variant or background",
        )


def resolve_background(point: SweepPointSpec) -> tuple[BackgroundFlow, ...]:
    """Return the flows of a sweep point. Raise InputError for one that nothing limits, LocatedError for a trace."""
    spec, topology = point.spec, point.topology
    found = []
    for position, flow in enumerate(spec.background):
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
                _offered(position, flow, point),
            )
        )
    return tuple(found)


def _offered(position: int, flow: BackgroundSpec, point: SweepPointSpec) -> OfferedRate:
    """Return what a flow offers. Raise InputError where it takes all that it gets, and nothing ends that."""
    if flow.trace is not None:
        trace = point.offered[flow.trace]
        period_ns = trace.period_ns(flow.loop)
        rows = trace.within(period_ns)
        if not rows[-1].values:
            raise trace.fault(rows[-1], "rate: it is empty: give a rate, or 0bit for none")
        return OfferedRate(tuple((row.at_ns, row.values["rate"]) for row in rows), period_ns)
    link = point.topology.conditions(flow.source, flow.destination)
    if flow.rate is None and link.pair_rate_bps is None and point.topology.intra_rate_bps is None:
        raise InputError(
            f"background.{position}.rate: from {flow.source} to {flow.destination} nothing limits a flow without one: "
            "give it a rate, or topology.wan a rate"
        )
    on_off = None
    if flow.on_off is not None:
        written = flow.on_off
        seed = f"{point.spec.seed} {flow.name}"
        on_off = OnOffTimes(written.burst, written.pause, written.times == "exponential", seed)
    return OfferedRate(((0, flow.rate),), on_off=on_off)
