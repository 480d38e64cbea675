"""torch's own pipeline stage, with its computation timed."""

from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage

from workloads.baselines.compute_spans import ComputeSpans


class TimedStage(PipelineStage):
    """A ``PipelineStage`` that measures each of its forwards and backwards and does nothing else differently.

    torch waits for what a stage receives before it calls these methods, so that no waiting is measured. In the first
    stage, whose input needs no gradient, torch defers all of a split backward: its ``backward_input`` spans are empty
    and its ``backward_weight`` spans are whole backwards.
    """

    def __init__(self, spans: ComputeSpans, module: torch.nn.Module, stage: int, stages: int, **options: Any) -> None:
        super().__init__(module, stage, stages, torch.device("cpu"), **options)
        self._spans = spans

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **options: Any) -> Any:
        """Run torch's forward, measured."""
        with self._spans.measured("forward", fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **options)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """Run torch's backward, measured; only the gradient of the input unless ``full_backward``."""
        with self._spans.measured("backward" if full_backward else "backward_input", bwd_chunk_id):
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """Run torch's weight backward, measured."""
        with self._spans.measured("backward_weight", bwd_chunk_id):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward)
