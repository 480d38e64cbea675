"""Decode the sequences of a decode host: collect the parts of their KV caches, then compute one token at a time."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from wanbed.workloads.compute.device.determinism import choose_kernels
from wanbed.workloads.compute.device.torch_device import create_device
from wanbed.workloads.inference.decode import decoding
from wanbed.workloads.inference.inference_stage import InferenceStage
from wanbed.workloads.inference.inference_work import InferenceWork

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
        torch.set_num_threads(work.threads)
        choose_kernels(deterministic=work.deterministic)
        model, device = work.model, create_device(work.device)
        self._stage = InferenceStage(
            model, range(model.layers), seed=work.seed, device=device, precision=work.precision
        )
        self._prompts: dict[int, _Prompt] = {}
        self._decoding: deque[tuple[int, Iterator[int]]] = deque()
        self.tokens: dict[int, list[int]] = {}

    @property
    def busy(self) -> bool:
        """Whether there is a token to compute."""
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
