"""Bound from below when each stage of one pipeline can have ended its computation in an iteration.

A GPU or a link does one thing at a time, and every microbatch visits each of them in a fixed order. So each chain below
takes time in any schedule, with or without idling. With M microbatches, of which a stage holds K at most, stage s ends
its last gradient part (the part of the backward that the previous stage waits for) no earlier than:

- **GPU**: the first microbatch has come, and the GPU has done all of its work but the weight gradients that may follow.
  Until the first gradient is back, it can only run the forwards and recomputes of K microbatches.
- **memory** (Little's law): a microbatch is held from the start of its forward to the end of its backward, which lasts
  a round trip through the later stages. With K at a time, M take ``ceil(M / K)`` such times. Where K is M, what is left
  of this is the fill and drain of the last microbatch.
- **link**: a direction of a boundary has carried all transfers, and the last of them has made the rest of its way.

Then follows the way back to stage 0, through the gradient parts of the stages before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class ChainPart(Enum):
    """The part of a pipeline that makes up most of a chain."""

    PATH = "fill and drain"
    GPU = "gpu"
    MEMORY = "memory"
    LINK_THERE = "link to the next stage"
    LINK_BACK = "link to the previous stage"


@dataclass(frozen=True, slots=True)
class StageTimes:
    """The durations of one microbatch at one stage in nanoseconds.

    ``gradient_ns`` is the whole backward, unless its weight gradients are an action of their own, ``weight_ns``.
    ``held`` is how many microbatches the stage may hold at once.
    """

    forward_ns: float
    recompute_ns: float
    gradient_ns: float
    weight_ns: float
    held: int

    @property
    def whole_ns(self) -> float:
        """All of the work on one microbatch."""
        return self.forward_ns + self.recompute_ns + self.gradient_ns + self.weight_ns


@dataclass(frozen=True, slots=True)
class BoundaryWay:
    """One direction of a boundary in nanoseconds: latency, the least time of one transfer, and of an iteration's."""

    latency_ns: float = 0.0
    transfer_ns: float = 0.0
    busy_ns: float = 0.0

    @property
    def pass_ns(self) -> float:
        """The time from the end of one stage's computation to the earliest start of the next one's."""
        return self.latency_ns + self.transfer_ns


@dataclass(frozen=True, slots=True)
class Hop:
    """A boundary: the way of activations to the next stage, and that of gradients back."""

    there: BoundaryWay = BoundaryWay()
    back: BoundaryWay = BoundaryWay()


class Chain(NamedTuple):
    """A time before which something has not ended, and the part of which most of the chain consists.

    ``place`` is the part's stage, or the stage before its boundary. ``part_ns`` is the length of the part alone.
    """

    end_ns: float
    part: ChainPart
    place: int
    part_ns: float

    def later(self, by_ns: float) -> "Chain":
        """Return the chain with ``by_ns`` more of the way at its end."""
        return Chain(self.end_ns + by_ns, self.part, self.place, self.part_ns)

    def after(self, times: int, other: "Chain") -> "Chain":
        """Return the chain with another one so many times before it. The longer part of the two counts."""
        end_ns = self.end_ns + times * other.end_ns
        if (self.part, self.place) == (other.part, other.place):
            return Chain(end_ns, self.part, self.place, self.part_ns + times * other.part_ns)
        longer = max(self, other._replace(part_ns=times * other.part_ns), key=lambda chain: chain.part_ns)
        return longer._replace(end_ns=end_ns)


class PipelineChains:
    """The chains of one pipeline in one iteration, counted from the start of its first forward."""

    def __init__(self, stages: Sequence[StageTimes], hops: Sequence[Hop], microbatches: int) -> None:
        self._stages, self._hops, self._microbatches = stages, hops, microbatches
        last = len(stages) - 1
        self.reach_ns = [0.0]
        for stage, hop in zip(stages, hops, strict=False):
            self.reach_ns.append(self.reach_ns[-1] + stage.forward_ns + hop.there.pass_ns)
        # The least time from the end of a microbatch's forward to the start of its gradient part: until the gradient
        # is back, and the recompute has ended.
        self._returns_ns = [0.0] * (last + 1)
        self._waits_ns = [stage.recompute_ns for stage in stages]
        for number in range(last - 1, -1, -1):
            hop, after = hops[number], stages[number + 1]
            beyond_ns = after.forward_ns + self._waits_ns[number + 1] + after.gradient_ns
            returns_ns = self._returns_ns[number] = hop.there.pass_ns + beyond_ns + hop.back.pass_ns
            self._waits_ns[number] = max(self._waits_ns[number], returns_ns)
        # The time until the first gradient is back in which a stage has nothing that it may run.
        self._idles_ns = [
            max(0.0, each.forward_ns + back_ns - min(each.held, microbatches) * (each.forward_ns + each.recompute_ns))
            for each, back_ns in zip(stages, self._returns_ns, strict=True)
        ]

    def gradient_ends(self) -> list[Chain]:
        """Return for each stage the chain before whose end its last gradient part has not ended."""
        ends = [self._at_stage(number) for number in range(len(self._stages))]
        for boundary, hop in enumerate(self._hops):
            for found, number in self._over(boundary, hop):
                if found.end_ns > ends[number].end_ns:
                    ends[number] = found
        for number in range(len(ends) - 1, 0, -1):
            back_ns = self._hops[number - 1].back.pass_ns + self._stages[number - 1].gradient_ns
            if ends[number].end_ns + back_ns >= ends[number - 1].end_ns:
                ends[number - 1] = ends[number].later(back_ns)
        return ends

    def ends(self) -> list[Chain]:
        """Return for each stage the chain before whose end it has not ended all of its computation."""
        found = []
        for number, (stage, gradient) in enumerate(zip(self._stages, self.gradient_ends(), strict=True)):
            work_ns = self._microbatches * stage.whole_ns
            busy = Chain(self.reach_ns[number] + self._idles_ns[number] + work_ns, ChainPart.GPU, number, work_ns)
            after = gradient.later(stage.weight_ns)
            found.append(busy if busy.end_ns >= after.end_ns else after)
        return found

    def cycles(self) -> list[Chain]:
        """Return for each stage the chain which its computation of an iteration lasts at least, from its first forward.

        A stage begins no iteration before its optimizer step of the one before it. So these chains, and what follows
        the computation of each stage, repeat in every iteration, while the fill of the pipeline may overlap with it.
        """
        return [chain.later(-reach_ns) for chain, reach_ns in zip(self.ends(), self.reach_ns, strict=True)]

    def between_sent_ns(self, boundary: int, closing_ns: Sequence[float]) -> tuple[float, float]:
        """Return the least time from the last activation that left at a boundary to the first of the next iteration.

        The second figure is that of the gradients. ``closing_ns`` is what follows the computation of each stage.
        """
        hop, before, after = self._hops[boundary], self._stages[boundary], self._stages[boundary + 1]
        around_ns = 0.0
        for number in range(boundary + 1):
            stage, own_ns = self._stages[number], self._stages[number].weight_ns + closing_ns[number]
            if number:
                passed = self._hops[number - 1]
                gradient_ns = self._stages[number - 1].gradient_ns
                own_ns = max(own_ns, passed.back.pass_ns + gradient_ns + around_ns + passed.there.pass_ns)
            around_ns = own_ns + stage.forward_ns
        on_ns = after.forward_ns + self._waits_ns[boundary + 1] + after.gradient_ns
        return (
            hop.there.latency_ns + on_ns + hop.back.pass_ns + before.gradient_ns + around_ns,
            hop.back.latency_ns + before.gradient_ns + around_ns + hop.there.pass_ns + on_ns,
        )

    def sent_ns(self, boundary: int) -> tuple[float, float]:
        """Return when the first activation, and the first gradient, can be ready to be sent over a boundary."""
        after = self._stages[boundary + 1]
        there_ns = self.reach_ns[boundary] + self._stages[boundary].forward_ns
        back_ns = self.reach_ns[boundary + 1] + after.forward_ns + self._waits_ns[boundary + 1] + after.gradient_ns
        return there_ns, back_ns

    def after_sent_ns(self, boundary: int, closing_ns: Sequence[float]) -> tuple[float, float]:
        """Return what an iteration lasts at least after the last activation, and gradient, has left at a boundary.

        ``closing_ns`` is what follows the computation of each stage: all-reduce and optimizer.
        """
        after_ns = self._after_gradient_ns(boundary + 1, closing_ns)
        hop, before, after = self._hops[boundary], self._stages[boundary], self._stages[boundary + 1]
        there_ns = hop.there.latency_ns + after.forward_ns + self._waits_ns[boundary + 1] + after.gradient_ns
        back_ns = hop.back.latency_ns + before.gradient_ns
        return there_ns + after_ns[-1], back_ns + after_ns[-2]

    def _after_gradient_ns(self, last: int, closing_ns: Sequence[float]) -> list[float]:
        """Return for stages 0 to ``last`` the least time from the end of a gradient part to the iteration's end."""
        found: list[float] = []
        for number in range(last + 1):
            own_ns = self._stages[number].weight_ns + closing_ns[number]
            if number:
                back_ns = self._hops[number - 1].back.pass_ns + self._stages[number - 1].gradient_ns
                own_ns = max(own_ns, back_ns + found[-1])
            found.append(own_ns)
        return found

    def _at_stage(self, number: int) -> Chain:
        """Return the longest chain through the GPU and the memory of a stage to its last gradient part."""
        stage, microbatches, reach_ns = self._stages[number], self._microbatches, self.reach_ns[number]
        forward_ns, whole_ns = stage.forward_ns, stage.recompute_ns + stage.gradient_ns + stage.weight_ns
        held, drain_ns = min(stage.held, microbatches), self._waits_ns[number] + stage.gradient_ns
        before = microbatches - held
        part = ChainPart.GPU
        part_ns = microbatches * (forward_ns + stage.recompute_ns + stage.gradient_ns) + before * stage.weight_ns
        end_ns = part_ns + self._idles_ns[number]
        # When the last forward begins, all but the held microbatches are complete.
        forwards_ns = microbatches * forward_ns + before * whole_ns
        drained_ns = forwards_ns + drain_ns + (self._idles_ns[number] if before else 0.0)
        if drained_ns > end_ns:
            end_ns, part_ns = drained_ns, forwards_ns
        rounds, rest = divmod(microbatches - 1, held)
        held_ns = rounds * (forward_ns + drain_ns + stage.weight_ns)
        last_ns = rest * forward_ns + forward_ns + drain_ns
        if held_ns + last_ns > end_ns:
            end_ns = held_ns + last_ns
            part, part_ns = (ChainPart.MEMORY, held_ns) if rounds else (ChainPart.PATH, last_ns)
        return Chain(reach_ns + end_ns, part, number, part_ns)

    def _over(self, boundary: int, hop: Hop) -> list[tuple[Chain, int]]:
        """Return the chains through the two directions of a boundary, each with the stage at which it arrives."""
        there_ns, back_ns = self.sent_ns(boundary)
        before, after = self._stages[boundary], self._stages[boundary + 1]
        on_ns = hop.there.latency_ns + after.forward_ns + self._waits_ns[boundary + 1] + after.gradient_ns
        there_ns += hop.there.busy_ns + on_ns
        back_ns += hop.back.busy_ns + hop.back.latency_ns + before.gradient_ns
        return [
            (Chain(there_ns, ChainPart.LINK_THERE, boundary, hop.there.busy_ns), boundary + 1),
            (Chain(back_ns, ChainPart.LINK_BACK, boundary, hop.back.busy_ns), boundary),
        ]
