"""Decode, the second phase of inference: compute one token after another from the KV cache.

A decode host collects the parts of each sequence's cache before it computes the sequence, one token at a time.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from wanbed.workloads.compute.device.torch_device import configured_device
from wanbed.workloads.inference.inference_model import InferenceWork
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


MOST_TOKENS = 256
"""The longest output of a sequence, so that one request cannot delay all others for long."""


@dataclass(frozen=True)
class _Part:
    layers: range
    chunk: int
    data: memoryview


@dataclass(slots=True)
class _Prompt:
    """A prompt whose cache is still arriving."""

    parts: list[_Part] = field(default_factory=list)
    first_token: int | None = None


class SequenceDecoder:
    """Decodes greedily with the whole model, one sequence after the other in the order of ``begin``.

    ``tokens`` has each request's output tokens so far, its first one included. The number of torch's threads and the
    choice of kernels are set for the whole process. Raises ValueError if the device is not available.
    """

    def __init__(self, work: InferenceWork) -> None:
        model, device = work.model, configured_device(work.device)
        self._stage = InferenceStage(
            model, range(model.layers), seed=work.seed, device=device, precision=work.precision
        )
        self._prompts: dict[int, _Prompt] = {}
        self._decoding: deque[tuple[int, Iterator[int]]] = deque()
        self.tokens: dict[int, list[int]] = {}

    @property
    def busy(self) -> bool:
        """Return whether there is a token to compute."""
        return bool(self._decoding)

    def add_cache_part(
        self, request: int, layers: range, chunk: int, data: memoryview, first_token: int | None
    ) -> None:
        """Keep a part of a request's cache, from ``KVCache.chunk_bytes``, and the first token if it comes with it."""
        prompt = self._prompts.setdefault(request, _Prompt())
        prompt.parts.append(_Part(layers, chunk, data))
        if first_token is not None:
            prompt.first_token = first_token

    def begin(self, request: int, tokens: int) -> None:
        """Begin to decode a request whose cache has arrived, up to ``tokens`` output tokens (at most ``MOST_TOKENS``).

        Raises ValueError if the cache is incomplete, or if its first token has not arrived.
        """
        prompt = self._prompts.pop(request)
        if prompt.first_token is None:
            raise ValueError(f"request {request}: its first token did not come with its cache")
        model = self._stage.model
        arrived_tokens = dict.fromkeys(range(model.layers), 0)
        for part in prompt.parts:
            for layer in part.layers:
                arrived_tokens[layer] += part.data.nbytes // model.kv_bytes(len(part.layers), 1)
        prompt_tokens = max(arrived_tokens.values())
        if min(arrived_tokens.values()) != prompt_tokens:
            raise ValueError(f"request {request}: its cache is not whole")
        more = min(tokens, MOST_TOKENS) - 1
        cache = self._stage.new_cache(prompt_tokens + more)
        loaded = dict.fromkeys(arrived_tokens, 0)
        for part in sorted(prompt.parts, key=lambda part: part.chunk):
            start = loaded[part.layers.start]
            cache.load_chunk(part.layers, start, part.data)
            end = start + part.data.nbytes // model.kv_bytes(len(part.layers), 1)
            loaded.update(dict.fromkeys(part.layers, end))
        self.tokens[request] = [prompt.first_token]
        self._decoding.append((request, decoding([self._stage], [cache], prompt.first_token, more)))

    def step(self) -> None:
        """Compute the next token of the sequence that was begun first, if there is any."""
        while self._decoding:
            request, followers = self._decoding[0]
            token = next(followers, None)
            if token is not None:
                self.tokens[request].append(token)
                return
            self._decoding.popleft()
