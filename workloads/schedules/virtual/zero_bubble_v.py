"""ZB-V: two virtual stages a GPU in the shape of a V, and a split backward, in the memory of 1F1B."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import ClassVar

from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape, VirtualLayout
from wanbed.workloads.schedules.virtual.interleaved import ChunkedOrder


class ZeroBubbleV(ChunkedOrder):
    """ZB-V: stage s of S has the virtual stages s and 2S - 1 - s, so that the first one also has the last.

    Its order is made for a forward, an input part and a weight part of equal length. Then the bubble is
    the time of ``S - 1`` of them, each half a stage's. Every stage holds up to 2S parts of half a stage, which is the
    memory of 1F1B's first stage. The list is that of 2S - 1 microbatches at least, without those that there are not.

    Raises ValueError unless there are 2 virtual stages.
    Sources: Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 6; "Pipeline Parallelism with
    Controllable Memory", arXiv 2405.15362.
    """

    splits_backward: ClassVar[bool] = True
    virtual_layout: ClassVar[VirtualLayout | None] = VirtualLayout.V_SHAPED

    def __init__(self, shape: PipelineShape) -> None:
        if shape.virtual_stages != 2:
            raise ValueError(f"training.virtual_stages: zb-v has 2 of them, not {shape.virtual_stages}: give 2")
        super().__init__(shape)

    def order(self, stage: int) -> Sequence[Action]:
        """Return the phases of the V, without the microbatches that there are not."""
        return [action for action in self._phases(stage) if action.microbatch < self.shape.microbatches]

    def _phases(self, stage: int) -> Iterator[Action]:
        after = self.shape.stages - stage
        microbatches = max(2 * self.shape.stages - 1, self.shape.microbatches)
        forward = [self._forwards(chunk) for chunk in (0, 1)]
        until_input = [self._until_input(stage, chunk) for chunk in (0, 1)]
        weight = [self._weights(chunk) for chunk in (0, 1)]
        # Fill the way to the turn and back.
        for _ in range(2 * after - 1):
            yield next(forward[0])
        for _ in range(stage):
            yield next(forward[1])
            yield next(forward[0])
        # Work off what has come back, until the gradients have come through to the first chunk.
        for _ in range(after):
            yield next(forward[1])
            yield from next(until_input[1])
            yield next(weight[1])
        begun = 2 * after - 1 + stage
        for number in range(microbatches - self.shape.stages):
            if begun + number < microbatches:
                yield next(forward[0])
            yield from next(until_input[0])
            yield next(weight[0])
            yield next(forward[1])
            yield from next(until_input[1])
            yield next(weight[1])
        # Nothing is left to forward. Input parts go first, since other stages wait for them.
        for _ in range(stage):
            yield from next(until_input[0])
            yield from next(until_input[1])
        for _ in range(after):
            yield from next(until_input[0])
            yield next(weight[0])
        for chunk in (1, 0):
            for _ in range(stage):
                yield next(weight[chunk])

    def _forwards(self, chunk: int) -> Iterator[Action]:
        return (Action(ActionKind.FORWARD, microbatch, chunk) for microbatch in count())

    def _until_input(self, stage: int, chunk: int) -> Iterator[Sequence[Action]]:
        return (list(self.backward(stage, microbatch, chunk))[:-1] for microbatch in count())

    def _weights(self, chunk: int) -> Iterator[Action]:
        return (Action(ActionKind.BACKWARD_WEIGHT, microbatch, chunk) for microbatch in count())
