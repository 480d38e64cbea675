"""Declare, while the file is read, what the experiment's engine cannot run.

What a simulation accepts but does not model is in ``wanbed.runner.runs.not_modelled``.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from wanbed.ground.exclusions import Declared, Exclusion, Refusal
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.resolve.followed_packets import reason_not_followed
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.trainings.local_updates.resolution import LocalUpdatesVariant
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant
from wanbed.runner.trainings.trace.resolution import TraceVariant
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.trace_replay.replayed_trace import ReplayedTrace

_OF_KNOWN_TIMES = ("compute.slower", "compute.jitter", "compute.from")
"""Fields that only known times go with."""


def engine_refusals(
    spec: ExperimentSpec, topology: Topology, variants: Sequence[ResolvedVariant]
) -> Iterator[Declared]:
    """Yield what the experiment's engine cannot run.

    An emulation has no ideal transport, and no trace whose ranks have collectives in several groups; on a rack, no
    virtual time. In virtual time compute must not take real time, and there is no dilation. A simulation cannot run
    torch's baseline schedules or a program of the user's; it accepts any clock and any dilation.
    """
    yield from _of_known_times(spec, variants)
    if spec.engine == "simulate":
        yield from _not_simulated(variants)
        yield from _not_followed(spec, topology, variants)
    else:
        yield from _not_emulated(spec, variants)


def _of_known_times(spec: ExperimentSpec, variants: Sequence[ResolvedVariant]) -> Iterator[Exclusion]:
    """Yield fields about known compute times where the work itself decides how long it takes."""
    backend = spec.compute.backend
    for position, variant in enumerate(variants):
        yield Exclusion(
            _OF_KNOWN_TIMES,
            f"the program of variants.{position} takes as long as it computes",
            when=isinstance(variant, ProgramVariant),
            given_in=spec,
        )
    yield Exclusion(
        _OF_KNOWN_TIMES,
        f"{backend.title} takes as long as it computes",
        "give kind: replay, or engine: simulate",
        when=spec.engine != "simulate" and not backend.takes_known_times,
        given_in=spec,
    )


def _not_emulated(spec: ExperimentSpec, variants: Sequence[ResolvedVariant]) -> Iterator[Declared]:
    backend = spec.compute.backend
    if spec.engine == "rack" and spec.clock == "virtual":
        yield Refusal("clock: the machines of a rack keep real time: give clock: real, or engine: emulate")
    yield Exclusion(
        "training.precision",
        f"{backend.title} trains in bf16 or fp32: in fp16 it would have to scale its losses",
        "give bf16 or fp32, kind: replay, or engine: simulate",
        when=backend.trains and spec.training.precision == "fp16",
        leave="",
    )
    if spec.clock == "virtual":
        yield from _not_in_virtual_time(spec, variants)
    for position, variant in enumerate(variants):
        yield Exclusion(
            f"variants.{position}.transport.model",
            f"only a simulation models transport as {variant.transport.model}",
            "give engine: simulate",
            when=variant.transport.model != "auto",
        )
        yield Exclusion(
            f"variants.{position}.transport.held_until",
            "a rank goes on when its message has left, and only a simulation holds it until that has arrived",
            "give engine: simulate",
            when=variant.holds_until_arrival,
        )
        yield Exclusion(
            f"variants.{position}.transport.all_reduce_overlap",
            "ranks take pseudo-gradients after their inner step, and only a simulation sums them in a backward",
            "give engine: simulate",
            when=isinstance(variant, LocalUpdatesVariant) and variant.begins_beside_backward,
        )
        divided = isinstance(variant, PipelineVariant) and variant.virtual is not None
        yield Exclusion(
            f"variants.{position}.training.virtual_stages",
            f"{backend.title} computes undivided stages only",
            "give 1, kind: replay, or engine: simulate",
            when=divided and not backend.virtual_stages,
        )
        if isinstance(variant, TraceVariant):
            yield from _in_several_groups(variant.trace)


def _not_in_virtual_time(spec: ExperimentSpec, variants: Sequence[ResolvedVariant]) -> Iterator[Exclusion]:
    backend = spec.compute.backend
    for position, variant in enumerate(variants):
        yield Exclusion(
            f"variants.{position}.program",
            "in virtual time computation is free, and what a program computes would take none",
            "give clock: real",
            when=isinstance(variant, ProgramVariant),
            leave="the variant",
        )
    yield Exclusion(
        "compute.kind",
        f"in virtual time computation is free, {backend.title}'s would take none",
        "give kind: replay, or clock: real",
        when=backend.real_time,
        leave="",
    )
    yield Exclusion(
        "dilation",
        "virtual time carries every rate, it is never dilated",
        "give 1 or auto, or clock: real",
        when=spec.dilation not in {"auto", 1},
        leave="",
    )


def _in_several_groups(trace: ReplayedTrace) -> Iterator[Refusal]:
    members = Counter(rank for group in trace.groups for rank in group)
    for rank, groups in sorted(members.items()):
        if groups > 1:
            yield Refusal(
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
        reason = reason_not_followed(topology, variant, background=bool(spec.background))
        yield Exclusion(
            f"variants.{position}.transport.model",
            f"packets are not followed {reason}",
            "give mean",
            when=variant.transport.model == "packets" and reason is not None,
        )
