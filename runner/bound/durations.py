"""Find the shortest and the longest duration of each kind of action at each GPU of a variant."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.workloads.compute.replay import ReplayCosts
from wanbed.workloads.compute.varied_durations import DurationDraws
from wanbed.workloads.schedules.action import ActionKind

OPTIMIZER = "optimizer"
"""The kind of the optimizer step, beside those of actions."""

_MOST_DRAWS = 300_000
"""The most durations that are drawn to find the shortest: about a second."""
_NO_MICROBATCH = -1

ByKind = Mapping[str, int]
"""The duration in nanoseconds of each kind of action, the optimizer among them."""


@dataclass(frozen=True)
class Durations:
    """The durations at each GPU, by pipeline and stage. Shortest and longest differ only where times are drawn."""

    shortest: tuple[tuple[ByKind, ...], ...]
    longest: tuple[tuple[ByKind, ...], ...]


def durations_of(variant: PipelineVariant, iterations: int) -> Durations | None:
    """Return the durations in so many iterations; None if too many are drawn."""
    pipelines, stages = range(variant.pipelines), range(variant.placement.stages)
    draws = variant.pipelines * len(stages) * len(ActionKind) * variant.microbatches * iterations
    if variant.varies and draws > _MOST_DRAWS:
        return None
    found = [[_extremes(variant, variant.costs(p, stage), iterations) for stage in stages] for p in pipelines]
    return Durations(
        tuple(tuple(shortest for shortest, _ in pipeline) for pipeline in found),
        tuple(tuple(longest for _, longest in pipeline) for pipeline in found),
    )


def _extremes(variant: PipelineVariant, costs: ReplayCosts, iterations: int) -> tuple[ByKind, ByKind]:
    usual = {kind.value: costs.durations.of(kind) for kind in ActionKind} | {OPTIMIZER: costs.durations.optimizer_ns}
    if costs.variation is None:
        return usual, usual
    own = DurationDraws(costs.variation)
    drawn: dict[str, list[int]] = {kind: [] for kind in usual}
    for iteration, (kind, usual_ns) in product(range(iterations), usual.items()):
        microbatches = [_NO_MICROBATCH] if kind == OPTIMIZER else range(variant.microbatches)
        drawn[kind] += [own.duration_ns(iteration, kind, microbatch, usual_ns) for microbatch in microbatches]
    return {kind: min(each) for kind, each in drawn.items()}, {kind: max(each) for kind, each in drawn.items()}
