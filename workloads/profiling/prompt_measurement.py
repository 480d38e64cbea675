"""Measure the prefill of whole prompts, by the same layers that prefill in a GPU's bubbles uses."""

from collections.abc import Callable
from functools import partial

import torch

from workloads.inference.inference_stage import InferenceStage
from workloads.inference.key_value_cache import KVCache
from workloads.profiling.repeats import repeated


def measure_prompt(
    stage: InferenceStage,
    tokens: int,
    repeats: int,
    *,
    warmup_ns: int,
    repeat_ns: int,
    progress: Callable[[], None] = lambda: None,
) -> tuple[int, ...]:
    """Measure the prefill of a prompt of random tokens through all layers of the stage: ns, one figure per repeat.

    Embedding and head are included if the stage has them. The KV cache is allocated before the measurement.
    """
    inputs = _inputs(stage, tokens)

    def passes(count: int) -> dict[str, int]:
        spent_ns = 0
        for _ in range(count):
            cache = stage.new_cache(tokens)

            start_ns, end_ns = stage.device.timed(partial(_prefill, stage, cache, inputs))
            spent_ns += end_ns - start_ns
        return {"prompt": max(1, spent_ns // count)}

    return repeated(passes, repeats, warmup_ns=warmup_ns, repeat_ns=repeat_ns, progress=progress)["prompt"]


def _prefill(stage: InferenceStage, cache: KVCache, inputs: torch.Tensor) -> None:
    stage.prefill_chunk(cache, inputs, 0)


def _inputs(stage: InferenceStage, tokens: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(tokens)
    if stage.is_first:
        numbers = torch.randint(stage.model.vocabulary, (tokens,), generator=generator)
        return numbers.to(stage.device.device)
    hidden = torch.randn(tokens, stage.model.hidden, generator=generator)
    return hidden.to(stage.device.device, stage.dtype)
