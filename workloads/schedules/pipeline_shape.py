"""The shape of the pipeline that a schedule runs, and its virtual stages: which part of the model is which chunk."""

from dataclasses import dataclass, replace
from enum import StrEnum


@dataclass(frozen=True)
class PipelineShape:
    """One iteration of one pipeline: the number of stages and microbatches, and what each stage may do.

    ``recompute``: whether a stage runs its forward again before the backward. ``memory_bound``: how many microbatches
    a stage may hold at once, from the start of their forward to the end of their backward (None: any number). Each is
    one value for all stages, or a tuple with one value per stage. ``virtual_stages``: how many parts of the model each
    stage holds; a microbatch in one of V parts counts 1/V in ``memory_bound``. ``flushes``: how many times the pipeline
    fills and drains, each time for an equal part of the microbatches; with ``sums_flushes`` replicas sum the gradients
    of each flush before the next one begins. Raises ValueError naming the field.
    """

    stages: int
    microbatches: int
    recompute: bool | tuple[bool, ...] = False
    memory_bound: int | tuple[int, ...] | None = None
    virtual_stages: int = 1
    flushes: int = 1
    sums_flushes: bool = False

    def __post_init__(self) -> None:
        if self.stages < 1:
            raise ValueError(f"stages: {self.stages} is below 1")
        if self.microbatches < 1:
            raise ValueError(f"microbatches: {self.microbatches} is below 1")
        if self.virtual_stages < 1:
            raise ValueError(f"virtual_stages: {self.virtual_stages} is below 1")
        if self.flushes < 1 or self.microbatches % self.flushes:
            raise ValueError(f"flushes: {self.flushes} do not divide {self.microbatches} microbatches")
        for name in ("recompute", "memory_bound"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.stages:
                raise ValueError(f"{name}: {len(value)} values for {self.stages} stages, give one for each")
        bounds = self.memory_bound if isinstance(self.memory_bound, tuple) else (self.memory_bound,)
        if any(bound is not None and bound < 1 for bound in bounds):
            raise ValueError("memory_bound: a stage holds at least 1 microbatch")

    def recomputes(self, stage: int) -> bool:
        """Return whether that stage runs its forwards again before their backwards."""
        return self.recompute[stage] if isinstance(self.recompute, tuple) else self.recompute

    def keeping_last(self) -> "PipelineShape":
        """Return the same shape, but that the last stage keeps its activations."""
        recompute = tuple(self.recomputes(stage) and stage < self.stages - 1 for stage in range(self.stages))
        return replace(self, recompute=recompute)

    @property
    def flush(self) -> "PipelineShape":
        """The shape of one flush, for which a schedule is made."""
        if self.flushes == 1:
            return self
        return replace(self, microbatches=self.microbatches // self.flushes, flushes=1, sums_flushes=False)

    def holding(self, most: int) -> "PipelineShape":
        """Return the same shape, but that a stage holds so many microbatches at most, or fewer where it already did."""
        return replace(self, memory_bound=tuple(min(most, self.most_in_flight(stage)) for stage in range(self.stages)))

    def most_in_flight(self, stage: int) -> int:
        """Return how many microbatches that stage may hold at once, never more than there are in a flush."""
        bound = self.memory_bound[stage] if isinstance(self.memory_bound, tuple) else self.memory_bound
        microbatches = self.microbatches // self.flushes
        return microbatches if bound is None else min(bound, microbatches)


class VirtualLayout(StrEnum):
    """The layout of a model's virtual stages over the stages.

    ``LOOPED``: round and round, so that the last stage is followed by the first. ``V_SHAPED``: there and back in turn,
    so that two virtual stages that follow each other at a turn are on one stage.
    """

    LOOPED = "looped"
    V_SHAPED = "v-shaped"


@dataclass(frozen=True)
class VirtualStages:
    """The S x V virtual stages of a pipeline of ``stages`` stages with ``chunks`` chunks each.

    Virtual stages are numbered from 0 in the order of the model. With one chunk a stage is its own virtual stage.
    """

    stages: int
    chunks: int = 1
    layout: VirtualLayout = VirtualLayout.LOOPED

    @property
    def count(self) -> int:
        """The number of virtual stages."""
        return self.stages * self.chunks

    def number(self, stage: int, chunk: int) -> int:
        """Return the virtual stage that ``stage`` holds as its ``chunk``."""
        turned = self.layout is VirtualLayout.V_SHAPED and chunk % 2
        return chunk * self.stages + (self.stages - 1 - stage if turned else stage)

    def place(self, number: int) -> tuple[int, int]:
        """Return the stage and the chunk of a virtual stage."""
        chunk, position = divmod(number, self.stages)
        turned = self.layout is VirtualLayout.V_SHAPED and chunk % 2
        return (self.stages - 1 - position if turned else position), chunk

    def stage_of(self, number: int) -> int:
        """Return the stage that holds a virtual stage."""
        return self.place(number)[0]
