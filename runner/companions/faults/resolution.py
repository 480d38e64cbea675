"""Resolve the section ``fail``: check each fault, and place each variant anew on the hosts that faults leave."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import Declared, Exclusion, KnownName, Refusal
from wanbed.results.text import list_text
from wanbed.runner.companions.background.spec import BackgroundSpec
from wanbed.runner.companions.faults.spec import FaultSpec, PlannedFault, Recovery
from wanbed.runner.experiment.sweep import SweepPointSpec
from wanbed.runner.resolve.pipeline_resolution import Choose
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.variant_resolution import resolve_variant
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.trainings.local_updates.resolution import LocalUpdatesVariant
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant
from wanbed.testbed.network.topology import Topology


@dataclass(frozen=True)
class FaultPlan:
    """The faults in the trials of a sweep point, in order of time, and the reaction of training to them.

    ``left`` describes each variant without the hosts that are lost. It maps the variant's name and the lost hosts to
    the variant as it goes on, or to the reason why it cannot. It has an entry for each non-empty set of hosts that is
    lost after one of ``faults``.
    """

    faults: tuple[PlannedFault, ...] = ()
    recovery: Recovery = "none"
    checkpoint_every: int = 1
    left: Mapping[tuple[str, frozenset[str]], ResolvedVariant | str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Tell whether anything fails."""
        return bool(self.faults)

    def brings_back(self, variant: ResolvedVariant) -> bool:
        """Return whether any rank of ``variant`` fails and comes back."""
        places = enumerate(variant.placement.places)
        returning = [fault for fault in self.faults if fault.back_ns is not None]
        return any(fault.hits(rank, place.host.name) for rank, place in places for fault in returning)

    def variant_left(self, variant: ResolvedVariant, lost: frozenset[str]) -> ResolvedVariant | str:
        """Return how ``variant`` goes on without these hosts, or why it cannot."""
        return self.left[variant.name, lost] if lost else variant


def fault_refusals(point: SweepPointSpec, variants: Sequence[ResolvedVariant]) -> Iterator[Declared]:
    """Yield what is not in the topology, engines that nothing fails in, and variants that do not know failures."""
    spec = point.spec
    backend = spec.compute.backend
    yield Exclusion(
        ("recovery", "checkpoint_every"),
        "nothing fails",
        "give fail, like [{host: east-1, at: 20s}]",
        when=not spec.fail,
        given_in=spec,
    )
    yield Exclusion(
        "checkpoint_every",
        "nothing is restored from checkpoints",
        "give recovery: restart",
        when=spec.recovery == "none",
        given_in=spec,
    )
    yield Exclusion(
        "recovery",
        f"{backend.title} saves no checkpoints",
        when=backend.trains and not backend.saves_state,
        given_in=spec,
    )
    if not spec.fail:
        return
    # Before a simulation says that another engine lets them fail.
    for position, variant in enumerate(variants):
        restarts, on_device = spec.recovery == "restart", backend.sums_on_device
        yield from _not_failing(f"variants.{position}", variant, restarts=restarts, on_device=on_device)
    if spec.engine == "simulate":
        yield from _not_simulated(spec.fail, variants)
    for position, entry in enumerate(spec.fail):
        yield from _not_there(f"fail.{position}", entry, point.topology, variants)
        yield from _cut_off(f"fail.{position}", entry, spec.background)
    planned = _planned(point)
    for variant in variants:
        yield from _not_coming_back(planned, variant)


_EMULATE = "give engine: emulate (clock: virtual)"


def _not_simulated(faults: Sequence[FaultSpec], variants: Sequence[ResolvedVariant]) -> Iterator[Exclusion]:
    """Yield what does not fail in a simulation: only ranks do, and only where the others go on without them."""
    for variant in variants:
        without = f"a simulation has no failures but of replicas of a star with a quorum, and {variant.name!r} has none"
        yield Exclusion("fail", without, _EMULATE, when=not variant.goes_on_without)
    for position, fault in enumerate(faults):
        yield Exclusion(
            f"fail.{position}.{fault.kind}",
            "in a simulation only ranks fail",
            f"give rank, or {_EMULATE.removeprefix('give ')}",
            when=fault.rank is None,
            leave="fail",
        )
        yield Exclusion(
            f"fail.{position}.rank",
            f"{fault.rank}, and a simulation does not end with the replica that gathers",
            _EMULATE,
            when=any(fault.rank not in variant.goes_on_without for variant in variants),
            leave="fail",
        )


def _not_failing(where: str, variant: ResolvedVariant, *, restarts: bool, on_device: bool) -> Iterator[Exclusion]:
    name, transport = variant.spec.schedule, variant.transport
    replicas = isinstance(variant, LocalUpdatesVariant)
    yield Exclusion(
        f"{where}.program",
        "fail knows ranks of schedules only",
        when=isinstance(variant, ProgramVariant),
        leave="fail or the variant",
    )
    yield Exclusion(
        f"{where}.schedule",
        f"torch's {name} has no part in fail",
        when=isinstance(variant, BaselineVariant),
        leave="fail or the variant",
    )
    yield Exclusion(
        f"{where}.schedule",
        "replicas that synchronise seldom go on without one that fails only if each is a single stage of a star",
        "give training.stages: 1 and options with topology: star and a quorum",
        when=replicas and not variant.goes_on_without,
        leave="fail",
    )
    yield Exclusion(
        "recovery",
        f"the replicas of {where} that are left go on",
        when=replicas and restarts,
        leave="recovery or the variant",
    )
    yield Exclusion(
        "fail",
        f"only ranks of pipelines are let fail, and {variant.name!r} is no pipeline",
        when=not isinstance(variant, PipelineVariant),
    )
    yield Exclusion(
        f"{where}.prefill",
        "prefill has no part in fail",
        "give prefill: none and no pool",
        when=isinstance(variant, PipelineVariant) and variant.service is not None,
        leave="fail",
    )
    yield Exclusion(
        f"{where}.transport.all_reduce",
        f"{transport.all_reduce} does not end at once where a rank fails",
        "give ring",
        when=not transport.sums_over_transport(on_device=on_device),
        leave="fail",
    )


def _not_there(
    where: str, fault: FaultSpec, topology: Topology, variants: Sequence[ResolvedVariant]
) -> Iterator[Declared]:
    if fault.host is not None:
        yield known_host(f"{where}.host", fault.host, topology)
    if fault.gateway is not None:
        yield _known(f"{where}.gateway", fault.gateway, [each.name for each in topology.datacenters])
    for variant in variants if fault.rank is not None else ():
        ranks = len(variant.placement.places)
        if fault.rank is not None and fault.rank >= ranks:
            yield Refusal(f"{where}.rank: {fault.rank}, and {variant.name!r} has ranks 0 to {ranks - 1}")


_MOST_NAMED = 20


def known_host(field: str, name: str, topology: Topology) -> KnownName:
    """Declare that a field names a host. Hosts of flows in the background are nobody's to name."""
    return _known(field, name, [host.name for host in topology.hosts if host.trains or host.serves])


def _known(field: str, name: str, names: Sequence[str]) -> KnownName:
    return KnownName(field, name, names, f"{name!r} is none", f"there are {list_text(list(names[:_MOST_NAMED]))}")


def _cut_off(where: str, fault: FaultSpec, flows: Sequence[BackgroundSpec]) -> Iterator[Exclusion]:
    """Yield the flows in the background that a gateway's failure would end."""
    for flow in flows:
        yield Exclusion(
            f"{where}.gateway",
            f"the flow {flow.name!r} in the background would end with that of {fault.gateway}",
            "let hosts or ranks fail",
            when=fault.gateway in {flow.source, flow.destination},
            leave="the flow",
        )


def _not_coming_back(faults: Sequence[PlannedFault], variant: ResolvedVariant) -> Iterator[Declared]:
    """Yield the faults of ``fail``, in its order, whose ranks in ``variant`` cannot come back.

    Only a replica of a star with a quorum can, which is not the one that gathers, and only once it has failed.
    """
    hit = [_ranks(fault, variant) for fault in faults]
    for position, (fault, ranks) in enumerate(zip(faults, hit, strict=True)):
        returns = fault.back_ns is not None and bool(ranks)
        yield Exclusion(
            f"fail.{position}.for",
            f"only a replica of a star with a quorum comes back, and {variant.name!r} has none",
            when=returns and not variant.goes_on_without,
            leave="for or the variant",
        )
        yield Exclusion(
            f"fail.{position}.for",
            f"the others do not go on without rank 0, which gathers in {variant.name!r}",
            "let another one fail",
            when=returns and not ranks <= variant.goes_on_without,
        )
    for (first, one), (second, other) in combinations(enumerate(faults), 2):
        returns = one.back_ns is not None or other.back_ns is not None
        if returns and hit[first] & hit[second] and one.overlaps(other):
            yield Refusal(
                f"fail.{second}: {one} and {other} fail together in {variant.name!r}, before one of them is back: give "
                "other times"
            )


def _ranks(fault: PlannedFault, variant: ResolvedVariant) -> frozenset[int]:
    places = enumerate(variant.placement.places)
    return frozenset(rank for rank, place in places if fault.hits(rank, place.host.name))


def resolve_faults(
    point: SweepPointSpec, variants: Sequence[ResolvedVariant], directory: Path, choose: Choose
) -> FaultPlan:
    """Return what fails at a sweep point, where ``fault_refusals`` have nothing against it.

    ``directory`` and ``choose`` are as for ``resolve_variants``.
    """
    spec, topology, values = point.spec, point.topology, point.values
    if not spec.fail:
        return FaultPlan()
    faults = tuple(sorted(_planned(point), key=lambda fault: fault.at_ns))
    plan = FaultPlan(faults, spec.recovery, spec.checkpoint_every)
    if spec.recovery == "none":
        return plan
    lost: frozenset[str] = frozenset()
    left: dict[tuple[str, frozenset[str]], ResolvedVariant | str] = {}
    for fault in faults:
        lost |= frozenset(fault.hosts)
        for position, variant in enumerate(variants) if lost else ():
            written = WrittenVariant(spec, position, topology.without(lost), directory, values)
            left[variant.name, lost] = _resolved(written, choose)
    return replace(plan, left=left)


def _planned(point: SweepPointSpec) -> list[PlannedFault]:
    return [PlannedFault.of(entry, point.topology) for entry in point.spec.fail]


def _resolved(written: WrittenVariant, choose: Choose) -> ResolvedVariant | str:
    if not written.topology.hosts:
        return "no host is left"
    try:
        return resolve_variant(written, choose)
    except InputError as refusal:
        return str(refusal)
