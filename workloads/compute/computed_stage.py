"""The stage that a rank computes, and its parts of the model."""

from dataclasses import dataclass

from wanbed.workloads.schedules.pipeline_shape import VirtualStages


@dataclass(frozen=True)
class ComputedStage:
    """The stage that a rank computes, of one of ``pipelines`` pipelines with ``microbatches`` sequences an iteration.

    ``virtual`` are the virtual stages, None where stages are not divided. Raises ValueError naming the field.
    """

    stages: int
    stage: int
    pipelines: int
    pipeline: int
    microbatches: int
    virtual: VirtualStages | None = None

    def __post_init__(self) -> None:
        for name in ("stages", "pipelines", "microbatches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is below 1")
        if not 0 <= self.stage < self.stages:
            raise ValueError(f"stage: {self.stage} is none of the {self.stages} stages")
        if not 0 <= self.pipeline < self.pipelines:
            raise ValueError(f"pipeline: {self.pipeline} is none of the {self.pipelines} pipelines")

    @property
    def parts(self) -> tuple[int, ...]:
        """The numbers of the stage's parts of the model: its virtual stages, or itself."""
        virtual = self.virtual
        return (self.stage,) if virtual is None else tuple(virtual.number(self.stage, c) for c in range(virtual.chunks))

    @property
    def all_parts(self) -> int:
        """The number of parts that the model is cut into."""
        return self.stages if self.virtual is None else self.virtual.count
