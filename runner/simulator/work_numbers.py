"""Number the work of virtual stages, so that a simulated span is eight numbers with them too."""

from dataclasses import dataclass

import numpy as np

from wanbed.results.records.span_columns import SpanColumns, VirtualSpanColumns
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.workloads.message import MessageKind

_TENSORS = {None: 0, MessageKind.ACTIVATION: 1, MessageKind.GRADIENT: 2}


@dataclass(frozen=True)
class WorkNumbers:
    """Numbers that stand in the place of a span's microbatch, and have its virtual stage and its tensor too."""

    microbatches: int
    virtual_stages: int

    @classmethod
    def of(cls, variant: PipelineVariant) -> "WorkNumbers | None":
        """Return the numbers of a variant, None if a microbatch says it all: stages are not divided."""
        return None if variant.virtual is None else cls(variant.microbatches, variant.virtual.count)

    def base(self, virtual_stage: int, tensor: MessageKind | None = None) -> int:
        """Return the number of microbatch 0 at a virtual stage, or of a transfer from or to it."""
        return self.microbatches * (virtual_stage + self.virtual_stages * _TENSORS[tensor])

    def decoded(self, spans: SpanColumns) -> VirtualSpanColumns:
        """Return spans whose microbatches are such numbers; below 0 is what belongs to no microbatch."""
        of_stage, microbatch = np.divmod(spans.microbatch, self.microbatches)
        tensor, virtual_stage = np.divmod(of_stage, self.virtual_stages)
        none = spans.microbatch < 0
        own = {**vars(spans), "microbatch": np.where(none, spans.microbatch, microbatch)}
        return VirtualSpanColumns(
            **own, virtual_stage=np.where(none, -1, virtual_stage), tensor=np.where(none, 0, tensor)
        )
