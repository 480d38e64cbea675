"""Measure the prefill of whole prompts and of chunks after prior tokens, by the layers that prefill in bubbles uses."""

from collections.abc import Callable

import torch

from wanbed.workloads.inference.inference_stage import InferenceStage
from wanbed.workloads.profiling.repeats import Pace, repeated

_CHUNK = "chunk"


def measure_chunk(
    stage: InferenceStage,
    tokens: int,
    prior_tokens: int,
    pace: Pace,
    progress: Callable[[], None] = lambda: None,
) -> tuple[int, ...]:
    """Measure a chunk of random tokens after ``prior_tokens`` through all layers of the stage: ns, one for each repeat.

    With no prior tokens it is a whole prompt. Embedding and head are included if the stage has them. The KV cache with
    the prior tokens is made before the measurement.
    """
    inputs = _inputs(stage, prior_tokens + tokens)
    cache = stage.new_cache(prior_tokens + tokens)
    if prior_tokens:
        stage.prefill_chunk(cache, inputs[:prior_tokens], 0)
    chunk = inputs[prior_tokens:]

    def prefill() -> None:
        stage.prefill_chunk(cache, chunk, prior_tokens)

    def passes(count: int) -> dict[str, int]:
        spent_ns = 0
        for _ in range(count):
            cache.forget_after(prior_tokens)
            start_ns, end_ns = stage.device.timed(prefill)
            spent_ns += end_ns - start_ns
        return {_CHUNK: max(1, spent_ns // count)}

    return repeated(passes, pace, progress)[_CHUNK]


def _inputs(stage: InferenceStage, tokens: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(tokens)
    if stage.is_first:
        numbers = torch.randint(stage.model.vocabulary, (tokens,), generator=generator)
        return numbers.to(stage.device.device)
    hidden = torch.randn(tokens, stage.model.hidden, generator=generator)
    return hidden.to(stage.device.device, stage.dtype)
