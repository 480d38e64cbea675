"""Time the computation of torch's own pipeline stage."""

from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage

from workloads.baselines.compute_spans import ComputeSpans


class TimedStage(PipelineStage):
    """A ``PipelineStage`` that also measures each forward and backward.

    torch waits for received tensors before it calls these methods, so that no waiting is measured. In the first stage,
    whose input needs no gradient, torch defers all of a split backward: the ``backward_input`` spans are empty and the
    ``backward_weight`` spans are whole backwards.
    """

    def __init__(self, spans: ComputeSpans, module: torch.nn.Module, stage: int, stages: int, **options: Any) -> None:
        super().__init__(module, stage, stages, torch.device("cpu"), **options)
        self._spans = spans

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **options: Any) -> Any:
        """Run and measure torch's forward."""
        with self._spans.measured("forward", fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **options)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """Run and measure torch's backward: only the gradient of the input unless ``full_backward``."""
        with self._spans.measured("backward" if full_backward else "backward_input", bwd_chunk_id):
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """Run and measure torch's weight backward."""
        with self._spans.measured("backward_weight", bwd_chunk_id):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward)
