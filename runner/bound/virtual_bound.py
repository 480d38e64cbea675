"""Bound the makespan and the period of virtual stages from below.

A GPU does all of the work of its virtual stages, from when the first microbatch has come to the first of them until the
last gradient has made its way from there back. And every virtual stage alone has the chains of
``wanbed.runner.bound.pipeline_chains``, as if it had a GPU of its own: sharing one only makes iterations longer.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import inf

from wanbed.runner.bound.pipeline_chains import BoundaryWay, ChainPart, Hop, PipelineChains, StageTimes
from wanbed.runner.bound.resources import Resources, RingTimes, ring_times
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import Pair
from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.schedule import Schedule


class VirtualBound:
    """The bound of a variant with virtual stages, whose GPUs all take the same times."""

    def __init__(self, variant: PipelineVariant, schedule: type[Schedule], resources: Resources) -> None:
        self._variant, self._resources, self._splits = variant, resources, schedule.splits_backward
        self._times = self._of_parts()
        last = ActionKind.BACKWARD_WEIGHT if self._splits else ActionKind.BACKWARD
        self._rings = [
            ring_times(variant, resources, stage, self._hiding_ns(stage, last))
            for stage in range(variant.placement.stages)
        ]

    def makespans(self) -> Iterator[tuple[float, str]]:
        """Yield times that an iteration by itself lasts at least, each with the part that decides."""
        for pipeline in range(self._variant.pipelines):
            yield from self._makespans(pipeline)

    def periods(self) -> Iterator[tuple[float, str]]:
        """Yield times that lie between two iterations at least, each with the part that decides."""
        own = [list(self._cycles(pipeline)) for pipeline in range(self._variant.pipelines)]
        for of_pipelines in zip(*own, strict=True):
            (first_ns, part, stage), (last_ns, *_) = min(of_pipelines), max(of_pipelines)
            ring, optimizer_ns = self._rings[stage], self._variant.work.optimizer_ns[stage]
            yield first_ns + max(ring.after_last_ns, ring.own_ns) + optimizer_ns, part
            yield last_ns + optimizer_ns, part

    def _hiding_ns(self, stage: int, last: ActionKind) -> float:
        """Return the time behind which a stage's buckets may hide: that of the last backward of one part.

        Buckets of a part may be summed while another part still waits for gradients, however long that lasts.
        """
        if len(self._variant.buckets_bytes(stage)) > 1:
            return inf
        return max(each.durations.of(last) for each in self._variant.chunk_costs(stage))

    def _of_parts(self) -> list[StageTimes]:
        variant, layout = self._variant, self._variant.layout
        found = []
        for number in range(layout.count):
            stage, chunk = layout.place(number)
            durations = variant.chunk_costs(stage)[chunk].durations
            found.append(
                StageTimes(
                    durations.of(ActionKind.FORWARD),
                    durations.of(ActionKind.RECOMPUTE) if variant.shape.recomputes(stage) else 0,
                    durations.of(ActionKind.BACKWARD_INPUT if self._splits else ActionKind.BACKWARD),
                    durations.of(ActionKind.BACKWARD_WEIGHT) if self._splits else 0,
                    min(variant.shape.most_in_flight(stage) * layout.chunks, variant.microbatches),
                )
            )
        return found

    def _makespans(self, pipeline: int) -> Iterator[tuple[float, str]]:
        variant, times, microbatches = self._variant, self._times, self._variant.microbatches
        hops = self._hops(pipeline)
        chains = PipelineChains(times, hops, microbatches)
        closing_ns = [self._closing_ns(self._rings[stage], stage) for stage in range(variant.placement.stages)]
        for number, chain in enumerate(chains.ends()):
            stage = variant.layout.place(number)[0]
            decides = chain.part is ChainPart.GPU and 2 * chain.part_ns >= chain.end_ns
            part = f"gpu of stage {stage}" if decides else ChainPart.PATH.value
            yield chain.end_ns + closing_ns[stage], part
        for stage, after_ns in enumerate(closing_ns):
            numbers = [variant.layout.number(stage, chunk) for chunk in range(variant.layout.chunks)]
            first = min(numbers)
            needed_ns = sum(times[n].forward_ns + times[n].recompute_ns + times[n].gradient_ns for n in numbers)
            weight_ns = sum(times[n].weight_ns for n in numbers)
            back_ns = sum(hops[n].back.pass_ns + times[n].gradient_ns for n in range(first))
            for work_ns, rest_ns in ((needed_ns + weight_ns, after_ns), (needed_ns, back_ns)):
                yield chains.reach_ns[first] + microbatches * work_ns + rest_ns, f"gpu of stage {stage}"

    def _cycles(self, pipeline: int) -> Iterator[tuple[float, str, int]]:
        """Yield what a pipeline computes at least between two optimizer steps of a stage, with the stage."""
        variant, times, microbatches = self._variant, self._times, self._variant.microbatches
        hops = self._hops(pipeline)
        chains = PipelineChains(times, hops, microbatches)
        for number, chain in enumerate(chains.cycles()):
            stage = variant.layout.place(number)[0]
            decides = chain.part is ChainPart.GPU and 2 * chain.part_ns >= chain.end_ns
            yield chain.end_ns, f"gpu of stage {stage}" if decides else ChainPart.PATH.value, stage
        for stage in range(variant.placement.stages):
            numbers = [variant.layout.number(stage, chunk) for chunk in range(variant.layout.chunks)]
            first, part = min(numbers), f"gpu of stage {stage}"
            needed_ns = sum(times[n].forward_ns + times[n].recompute_ns + times[n].gradient_ns for n in numbers)
            weight_ns = sum(times[n].weight_ns for n in numbers)
            yield microbatches * (needed_ns + weight_ns), part, stage
            # The last gradient makes its way to the first part, whose GPU then steps and sends the next activation.
            back_ns = sum(hops[n].back.pass_ns + times[n].gradient_ns for n in range(first))
            if first:
                yield chains.reach_ns[first] + microbatches * needed_ns + back_ns, part, 0

    def _closing_ns(self, ring: RingTimes, stage: int) -> float:
        return ring.after_last_ns + self._variant.work.optimizer_ns[stage]

    def _hops(self, pipeline: int) -> list[Hop]:
        sizes = self._variant.work.activation_bytes
        pairs = pairwise(self._variant.chains[pipeline])
        return [
            Hop(self._way(ends, 8.0 * size_bytes), self._way(ends[::-1], 8.0 * size_bytes))
            for ends, size_bytes in zip(pairs, sizes, strict=True)
        ]

    def _way(self, ends: Pair, bits: float) -> BoundaryWay:
        shares = [(each, bits) for each in self._resources.between(ends)]
        return self._resources.way(ends, shares, self._variant.microbatches)
