"""The pipeline that a schedule is made for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PipelineShape:
    """One pipeline, over one iteration.

    ``recompute`` says whether a stage runs its forward again before the backward, and ``memory_bound`` how many
    microbatches it may hold at once, from the start of their forward to the end of their backward (None: any
    number). Each is one value for all stages, or a tuple with one per stage. Raises ValueError naming the field.
    """

    stages: int
    microbatches: int
    recompute: bool | tuple[bool, ...] = False
    memory_bound: int | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.stages < 1:
            raise ValueError(f"stages: {self.stages} is below 1")
        if self.microbatches < 1:
            raise ValueError(f"microbatches: {self.microbatches} is below 1")
        for name in ("recompute", "memory_bound"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.stages:
                raise ValueError(f"{name}: {len(value)} values for {self.stages} stages, give one for each")
        bounds = self.memory_bound if isinstance(self.memory_bound, tuple) else (self.memory_bound,)
        if any(bound is not None and bound < 1 for bound in bounds):
            raise ValueError("memory_bound: a stage holds at least 1 microbatch")

    def recomputes(self, stage: int) -> bool:
        """Return whether that stage runs its forwards again."""
        return self.recompute[stage] if isinstance(self.recompute, tuple) else self.recompute

    def most_in_flight(self, stage: int) -> int:
        """Return how many microbatches that stage may hold at once; at most all of them."""
        bound = self.memory_bound[stage] if isinstance(self.memory_bound, tuple) else self.memory_bound
        return self.microbatches if bound is None else min(bound, self.microbatches)
