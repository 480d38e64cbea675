"""The virtual stages of a pipeline: which part of the model each stage holds as which of its chunks."""

from dataclasses import dataclass
from enum import StrEnum


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
