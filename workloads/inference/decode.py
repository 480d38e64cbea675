"""Decode, the second phase of inference: compute one token after another from the KV cache."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from wanbed.workloads.inference.inference_stage import InferenceStage
from wanbed.workloads.inference.key_value_cache import KVCache


def greedy_token(logits: Tensor) -> int:
    """Return the most likely token, the lowest one of equals."""
    return int(logits.argmax())


def decode(stages: Sequence[InferenceStage], caches: Sequence[KVCache], first_token: int, tokens: int) -> list[int]:
    """Return the list of the ``tokens`` tokens that follow ``first_token`` (see ``decoding``)."""
    return list(decoding(stages, caches, first_token, tokens))


def decoding(
    stages: Sequence[InferenceStage], caches: Sequence[KVCache], first_token: int, tokens: int
) -> Iterator[int]:
    """Yield the ``tokens`` tokens that follow ``first_token``, each the most likely one after all tokens before it.

    Each token is computed when the iterator is advanced. ``stages`` are the whole model in order. ``caches`` has one
    cache for each stage, which holds the prompt. ``first_token`` is the result of the prompt's prefill. It is added to
    the caches, and so is every following token but the last.

    Raises ValueError if the stages are not the whole model, or if the caches do not match them or have too little room.
    """
    layers = [layer for stage in stages for layer in stage.layers]
    if not stages or layers != list(range(stages[0].model.layers)):
        raise ValueError(f"stages: layers {layers} one after another are not the whole model")
    if len(caches) != len(stages):
        raise ValueError(f"caches: {len(caches)} of them for {len(stages)} stages")
    prompt = caches[0].tokens
    for cache in caches:
        if cache.tokens != prompt:
            raise ValueError(f"caches: one has {cache.tokens} tokens, another {prompt}")
        if cache.capacity < prompt + tokens:
            raise ValueError(f"caches: {prompt} tokens and {tokens} more do not fit into {cache.capacity}")
    return _followers(stages, caches, first_token, range(prompt, prompt + tokens))


def _followers(
    stages: Sequence[InferenceStage], caches: Sequence[KVCache], token: int, positions: range
) -> Iterator[int]:
    for position in positions:
        x = torch.tensor([token])
        for stage, cache in zip(stages, caches, strict=True):
            x = stage.prefill_chunk(cache, x, position)
        token = greedy_token(x)
        yield token
