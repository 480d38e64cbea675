"""Check, while the file is read, that the experiment's engine can run it.

What a simulation accepts but does not model is in ``wanbed.runner.runs.not_modelled``.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.runner.companions.prefill.resolution import check_computed_prefill
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.resolve.followed_packets import reason_not_followed
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant
from wanbed.runner.trainings.trace.resolution import TraceVariant
from wanbed.testbed.network.topology import Topology, check_can_be_emulated
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.workloads.trace_replay.replayed_trace import ReplayedTrace

_OF_KNOWN_TIMES = ("compute.slower", "compute.jitter", "compute.from")
"""Fields that only known times go with."""


def check_engine(spec: ExperimentSpec, topology: Topology, variants: Sequence[ResolvedVariant]) -> None:
    """Raise InputError for what the experiment's engine cannot run.

    An emulation has no more hosts than addresses and no ideal transport, no prefill within torch's baseline schedules,
    and no trace whose ranks have collectives in several groups; on a rack, no virtual time. In virtual time compute
    must not take real time, and there is no dilation. A simulation cannot run torch's baseline schedules or a program
    of the user's; it accepts any clock and any dilation.
    """
    _check_known_times(spec, variants)
    if spec.engine == "simulate":
        check_exclusions(*_not_simulated(variants), *_not_followed(spec, topology, variants))
        return
    check_can_be_emulated(topology)
    if spec.engine == "rack" and spec.clock == "virtual":
        raise InputError("clock: the machines of a rack keep real time: give clock: real, or engine: emulate")
    if spec.clock == "virtual":
        _check_virtual_time(spec, variants)
    for position, variant in enumerate(variants):
        divided = isinstance(variant, PipelineVariant) and variant.virtual is not None
        check_exclusions(
            Exclusion(
                f"variants.{position}.transport.model",
                f"only a simulation models transport as {variant.transport.model}",
                "give engine: simulate",
                when=variant.transport.model != "tcp",
            ),
            Exclusion(
                f"variants.{position}.training.virtual_stages",
                f"{spec.compute.backend.title} computes undivided stages only",
                "give 1, kind: replay, or engine: simulate",
                when=divided and not spec.compute.backend.virtual_stages,
            ),
        )
        if isinstance(variant, TraceVariant):
            _check_groups(variant.trace)
    check_computed_prefill(spec, variants)


def check_packets_arrive(spec: TopologySpec, topology: Topology) -> None:
    """Raise InputError for a link that loses or corrupts every packet.

    No engine can train over such a link. ``spec`` is the specification that ``topology`` was resolved from.
    """
    for link in topology.wan:
        for (one, other), conditions in link.directions:
            way = f"between {one} and {other}" if link.back is None else f"from {one} to {other}"
            for each, value in conditions.impairments.items():
                if each.if_all and value >= 1:
                    raise InputError(
                        f"{_field(spec, (one, other), each.name)}: 100% {way}: "
                        f"{each.if_all}, and nothing can be trained: give less"
                    )


def _field(spec: TopologySpec, ends: tuple[str, str], name: str) -> str:
    """Return the path in the experiment file that sets an impairment of a direction of a link."""
    entries = sorted(enumerate(spec.links), key=lambda entry: entry[1].between is not None)
    for position, link in entries:
        about = {link.ends} if link.between is None else {link.ends, link.ends[::-1]}
        if ends in about and name in link.model_fields_set:
            return f"topology.links.{position}.{name}"
    return f"topology.wan.{name}" if spec.profile is None else "topology.profile"


def _check_known_times(spec: ExperimentSpec, variants: Sequence[ResolvedVariant]) -> None:
    """Raise InputError for fields about known compute times where the work itself decides how long it takes."""
    backend = spec.compute.backend
    check_exclusions(
        *(
            Exclusion(
                _OF_KNOWN_TIMES,
                f"the program of variants.{position} takes as long as it computes",
                when=isinstance(variant, ProgramVariant),
            )
            for position, variant in enumerate(variants)
        ),
        Exclusion(
            _OF_KNOWN_TIMES,
            f"{backend.title} takes as long as it computes",
            "give kind: replay, or engine: simulate",
            when=spec.engine != "simulate" and not backend.takes_known_times,
        ),
        of=spec,
    )


def _check_virtual_time(spec: ExperimentSpec, variants: Sequence[ResolvedVariant]) -> None:
    backend = spec.compute.backend
    check_exclusions(
        *(
            Exclusion(
                f"variants.{position}.program",
                "in virtual time computation is free, and what a program computes would take none",
                "give clock: real",
                when=isinstance(variant, ProgramVariant),
                leave="the variant",
            )
            for position, variant in enumerate(variants)
        ),
        Exclusion(
            "compute.kind",
            f"in virtual time computation is free, {backend.title}'s would take none",
            "give kind: replay, or clock: real",
            when=backend.real_time,
            leave="",
        ),
        Exclusion(
            "dilation",
            "virtual time carries every rate, it is never dilated",
            "give 1 or auto, or clock: real",
            when=spec.dilation not in {"auto", 1},
            leave="",
        ),
    )


def _check_groups(trace: ReplayedTrace) -> None:
    members = Counter(rank for group in trace.groups for rank in group)
    for rank, groups in sorted(members.items()):
        if groups > 1:
            raise InputError(
                f"compute.trace: rank {rank} has collectives in {groups} groups, and an emulation replays one group of "
                "a rank: give engine: simulate"
            )


def _not_simulated(variants: Sequence[ResolvedVariant]) -> Iterator[Exclusion]:
    for position, variant in enumerate(variants):
        yield Exclusion(
            f"variants.{position}.program",
            "a program runs as it is and is not simulated",
            "give engine: emulate",
            when=isinstance(variant, ProgramVariant),
            leave="the variant",
        )
        yield Exclusion(
            f"variants.{position}.schedule",
            f"{variant.spec.schedule} is run by torch itself and is not simulated",
            "give engine: emulate",
            when=isinstance(variant, BaselineVariant),
            leave="the variant",
        )


def _not_followed(spec: ExperimentSpec, topology: Topology, variants: Sequence[ResolvedVariant]) -> Iterator[Exclusion]:
    """Yield what keeps a simulation from following the packets of a variant that asks for it."""
    for position, variant in enumerate(variants):
        reason = "beside flows in the background" if spec.background else reason_not_followed(topology, variant)
        yield Exclusion(
            f"variants.{position}.transport.model",
            f"packets are not followed {reason}",
            "give tcp",
            when=variant.transport.model == "packets" and reason is not None,
        )
