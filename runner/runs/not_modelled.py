"""List the configured features that the simulator does not model, or not within what was validated.

This is the only place that defines them.

A simulation accepts them and reports them by name beside its figures. A comparison of simulated with emulated times
rejects them. ``wanbed.runner.resolve.engine_limits`` rejects what an engine cannot run.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from wanbed.ground.impairments import IMPAIRMENTS, NOT_SIMULATED, Impairment
from wanbed.ground.units import format_fraction
from wanbed.results.reading.not_modelled import NotModelled, gathered
from wanbed.runner.companions.registry import COMPANIONS, has_layer
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.quantities import AUTO
from wanbed.runner.experiment.sweep import SweepPointSpec
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.experiment.variant_spec import VariantSpec
from wanbed.runner.resolve.followed_packets import MODELLED_CONGESTION_CONTROLS
from wanbed.runner.resolve.packet_draws import is_impaired
from wanbed.runner.resolve.validated_range import CONGESTION, beyond, configured_text, cubic_beyond
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.testbed.network.topology import Topology

_TAKEN_EARLY = 2
_OVER_TIME = "over time"


def links_without(topology: Topology) -> tuple[NotModelled, ...]:
    """Return the impairments of WAN links that are not simulated, or beyond what was validated, with their links.

    Impairments may be written in the file or come from a network preset.
    """
    return _of_links(topology, _left_out)


def links_planned_without(topology: Topology) -> tuple[NotModelled, ...]:
    """Return the impairments of WAN links, of which a plan has none: what is drawn would favour plans by luck."""
    return _of_links(topology, lambda every, _: _impairments(every, tuple(reversed(IMPAIRMENTS))))


def _of_links(
    topology: Topology, settings: Callable[[Sequence[LinkConditions], bool], Iterable[tuple[str, str]]]
) -> tuple[NotModelled, ...]:
    """Return the settings of each link, as fields and values; those of one direction with that direction.

    ``settings`` gets all the conditions that a direction ever has, and whether the link changes in either one.
    """
    found = []
    for link in topology.wan:
        changes = bool(link.course_by_ends)
        ways = [
            (ends, list(settings((conditions,) if course is None else course.distinct, changes)))
            for (ends, conditions), course in zip(link.directions, link.courses, strict=True)
        ]
        both = [each for each in ways[0][1] if all(each in own for _, own in ways)]
        found += [NotModelled(f"topology.wan.{name}", value, links=(link.between,)) for name, value in both]
        for ends, own in ways:
            single = [each for each in own if each not in both]
            found += [NotModelled(f"topology.wan.{name}", value, directions=(ends,)) for name, value in single]
    return gathered(found)


def _left_out(every: Sequence[LinkConditions], changes: bool) -> Iterator[tuple[str, str]]:
    # Packets of a link that changes are not simulated one by one.
    yield from _impairments(every, tuple(reversed(IMPAIRMENTS)) if changes else NOT_SIMULATED)
    if not changes:
        yield from beyond(every[0])


def _impairments(every: Sequence[LinkConditions], which: Iterable[Impairment]) -> Iterator[tuple[str, str]]:
    """Yield each impairment that there ever is, with its largest value."""
    for each in which:
        if value := max(getattr(conditions.impairments, each.field) for conditions in every):
            yield each.name, configured_text(each, value)


def links_that_change(topology: Topology) -> tuple[NotModelled, ...]:
    """Return the links that change while training runs, which a plan takes as they are when it begins."""
    found = []
    for link in topology.wan:
        there, back = link.courses
        if there is not None and back is not None:
            found.append(NotModelled("topology.wan.changes", _OVER_TIME, links=(link.between,)))
        else:
            found += [
                NotModelled("topology.wan.changes", _OVER_TIME, directions=(ends,)) for ends in link.course_by_ends
            ]
    return gathered(found)


def simulated_without(
    spec: ExperimentSpec, topology: Topology, names: Collection[str] | None = None
) -> tuple[NotModelled, ...]:
    """Return everything that the simulation of a sweep point does not model.

    ``names`` limits the variants; links are always included.
    """
    return gathered([*links_without(topology), *_of_background(spec, topology), *_of_variants(spec, topology, names)])


def _of_background(spec: ExperimentSpec, topology: Topology) -> Iterator[NotModelled]:
    """Yield what is not modelled of flows in the background, with the direction of each."""
    for flow in spec.background:
        ends = flow.source, flow.destination
        drawn = is_impaired(topology, *ends)
        if flow.protocol == "udp" and drawn:
            yield NotModelled("background.protocol", "udp over links with loss or jitter", directions=(ends,))
        if flow.protocol == "tcp" and flow.congestion not in (CONGESTION if drawn else MODELLED_CONGESTION_CONTROLS):
            yield NotModelled("background.congestion", flow.congestion, directions=(ends,))


def plan_without(
    spec: ExperimentSpec, topology: Topology, names: Collection[str] | None = None
) -> tuple[NotModelled, ...]:
    """Return everything that the plan of a sweep point does not model; ``names`` as for a simulation."""
    return gathered([*links_planned_without(topology), *_of_variants(spec, topology, names)])


def _of_variants(spec: ExperimentSpec, topology: Topology, names: Collection[str] | None) -> Iterator[NotModelled]:
    for variant in spec.variants:
        if names is None or variant.name in names:
            yield from _of_variant(spec, topology, variant)


def _of_variant(spec: ExperimentSpec, topology: Topology, variant: VariantSpec) -> Iterable[NotModelled]:
    transport, names = variant.transport, (variant.name,)
    impaired = [is_impaired(topology, *link.between) for link in topology.wan]
    # An ideal transport has no congestion control by definition.
    if transport.model != "ideal":
        modelled = CONGESTION if all(impaired) and impaired else MODELLED_CONGESTION_CONTROLS
        if any(impaired) and not all(impaired):
            modelled = modelled & CONGESTION
        if transport.congestion not in modelled:
            yield NotModelled("transport.congestion", transport.congestion, variants=names)
        elif transport.congestion == "cubic":
            several = transport.connections != 1
            ways = [conditions for link in topology.wan for _, conditions in link.directions]
            for text in dict.fromkeys(text for way in ways for text in cubic_beyond(way, several=several)):
                yield NotModelled("transport.congestion", text, variants=names)
    elif any(impaired):
        yield NotModelled("transport.model", "ideal over links with loss or jitter", variants=names)
    if transport.is_nccl:
        yield NotModelled("transport.all_reduce", transport.all_reduce, variants=names)
    if not transport.overlap and _takes_early(spec, topology, transport):
        yield NotModelled("transport.overlap", "false with windows beyond what the links hold", variants=names)
    if not transport.receives_into_buffers and _takes_early(spec, topology, transport):
        yield NotModelled("transport.receive", "blocks with windows beyond what the links hold", variants=names)
    for companion in COMPANIONS:
        if getattr(spec, companion, None) and not has_layer(companion, "record"):
            yield NotModelled(companion, "beside training", variants=names)
    sharing = spec.compute.sharing or 1
    if sharing > 1:
        yield NotModelled("compute.sharing", str(sharing), variants=names)


def _takes_early(spec: ExperimentSpec, topology: Topology, transport: TransportSpec) -> bool:
    """Return whether an emulated network takes much of a message long before a link has carried it.

    What windows let out beyond what the link holds waits in the network, where it holds no sender up. In a simulation
    it does. With up to twice as much the two agree.
    """
    if transport.model == "ideal" or transport.connections == AUTO:
        return False
    let_out_bytes = transport.connections * transport.window
    for link in topology.wan:
        for (one, other), _ in link.directions:
            rate_bps = topology.line_rate_bps(one, other)
            if rate_bps is not None and let_out_bytes > _TAKEN_EARLY * rate_bps / 8e9 * topology.rtt_ns(one, other):
                return True
    return False


def left_to_times(specs: Iterable[ExperimentSpec], where: str) -> list[str]:
    """Return a line for each real-time compute back end that does not run in ``where``, such as "a plan"."""
    found: dict[str, None] = {}
    for compute in (spec.compute for spec in specs):
        if compute.backend.real_time:
            giver = "the experiment file" if compute.times_profile is None else "a compute profile"
            giver = giver if compute.from_run is None else "a measured run"
            found[f"{compute.backend.title} does not run in {where}: {giver} gives its times"] = None
    return list(found)


def planned_without(spec: ExperimentSpec, topology: Topology) -> tuple[NotModelled, ...]:
    """Return what the planner did not model when it placed stages of a sweep point; () if it placed none."""
    planned = [variant.name for variant in spec.variants if variant.placement == AUTO]
    if not planned:
        return ()
    drawn = [NotModelled(*drawn_times(spec), variants=tuple(planned))] if spec.compute.varies else []
    return gathered([*plan_without(spec, topology, planned), *drawn, *links_that_change(topology), *_flows(spec)])


def planned_for_begin(spec: ExperimentSpec, topology: Topology) -> tuple[NotModelled, ...]:
    """Return what a simulation models and the planner that placed its stages did not; () if it placed none."""
    if all(variant.placement != AUTO for variant in spec.variants):
        return ()
    return gathered([*links_that_change(topology), *_flows(spec)])


def _flows(spec: ExperimentSpec) -> Iterator[NotModelled]:
    """Yield each flow in the background, which no plan knows of."""
    for flow in spec.background:
        yield NotModelled("background", flow.kind, directions=((flow.source, flow.destination),))


def drawn_times(spec: ExperimentSpec) -> tuple[str, str]:
    """Return the field that has compute times drawn, and its value as text."""
    jitter = spec.compute.jitter
    if jitter is None:
        return "compute.resample", "true"
    return "compute.jitter", f"{jitter.distribution} {format_fraction(jitter.spread)}"


def as_written(found: Iterable[NotModelled]) -> list[dict[str, Any]]:
    """Return the entries in plain JSON types: ``field``, ``asked``, ``links``, ``variants``, and any ``directions``."""
    return [
        {
            "field": each.field,
            "asked": each.asked,
            "links": [list(ends) for ends in each.links],
            "variants": list(each.variants),
            **({"directions": [list(ends) for ends in each.directions]} if each.directions else {}),
        }
        for each in found
    ]


def left_out_of_plan(points: Sequence[SweepPointSpec]) -> Iterator[str]:
    """Yield a line for each feature of the file that a plan ignores."""
    yield from left_to_times((point.spec for point in points), "a plan")
    if any(point.spec.prefill is not None for point in points):
        yield "a plan is of training alone: prefill has no part in it"
    if any(point.spec.fail for point in points):
        yield "a plan is of training that nothing disturbs: fail has no part in it"
    if any(point.spec.background for point in points):
        yield "a plan is of training that has the WAN for itself: background has no part in it"
    if any(point.spec.compute.varies for point in points):
        yield "a plan takes compute times as they usually are: none is drawn"
    if any(point.topology.changes for point in points):
        yield "a plan takes links as they are when training begins: none changes"
