"""The sequences of a decode host. Their caches arrive in parts, and they continue one token at a time."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from workloads.compute.device.torch_device import create_device
from workloads.inference.decode import decoding
from workloads.inference.inference_stage import InferenceStage
from workloads.inference.inference_work import InferenceWork

MOST_TOKENS = 256
"""A sequence goes on for no more, so that one request cannot hold up all others for long."""


@dataclass(frozen=True)
class _Part:
    layers: range
    chunk: int
    data: memoryview


@dataclass(slots=True)
class _Prompt:
    """A prompt whose cache is on its way here."""

    parts: list[_Part] = field(default_factory=list)
    first_token: int | None = None


class SequenceDecoder:
    """Decodes with the work's whole model. Sequences are continued greedily, in the order in which they were begun.

    ``tokens`` are those of each request so far, its first one included. The number of torch's threads is set for the
    whole process. Raises ValueError for a device that is not there.
    """

    def __init__(self, work: InferenceWork) -> None:
        torch.set_num_threads(work.threads)
        model, device = work.model, create_device(work.device)
        self._stage = InferenceStage(
            model, range(model.layers), seed=work.seed, device=device, precision=work.precision
        )
        self._prompts: dict[int, _Prompt] = {}
        self._going_on: deque[tuple[int, Iterator[int]]] = deque()
        self.tokens: dict[int, list[int]] = {}

    @property
    def busy(self) -> bool:
        """Whether there is a token to compute."""
        return bool(self._going_on)

    def cache_came(self, request: int, layers: range, chunk: int, data: memoryview, first_token: int | None) -> None:
        """Keep a chunk's part of a cache, as ``KVCache.chunk_bytes`` has it, and the first token if it comes along."""
        prompt = self._prompts.setdefault(request, _Prompt())
        prompt.parts.append(_Part(layers, chunk, data))
        if first_token is not None:
            prompt.first_token = first_token

    def begin(self, request: int, tokens: int) -> None:
        """Continue a request whose cache is here, until it has ``tokens`` tokens (or ``MOST_TOKENS``).

        Raises ValueError if the cache is not whole, or its first token did not come.
        """
        prompt = self._prompts.pop(request)
        if prompt.first_token is None:
            raise ValueError(f"request {request}: its first token did not come with its cache")
        model = self._stage.model
        come = dict.fromkeys(range(model.layers), 0)
        for part in prompt.parts:
            for layer in part.layers:
                come[layer] += part.data.nbytes // model.kv_bytes(len(part.layers), 1)
        prompt_tokens = max(come.values())
        if min(come.values()) != prompt_tokens:
            raise ValueError(f"request {request}: its cache is not whole")
        more = min(tokens, MOST_TOKENS) - 1
        cache = self._stage.new_cache(prompt_tokens + more)
        loaded = dict.fromkeys(come, 0)
        for part in sorted(prompt.parts, key=lambda part: part.chunk):
            start = loaded[part.layers.start]
            cache.load_chunk(part.layers, start, part.data)
            end = start + part.data.nbytes // model.kv_bytes(len(part.layers), 1)
            loaded.update(dict.fromkeys(part.layers, end))
        self.tokens[request] = [prompt.first_token]
        self._going_on.append((request, decoding([self._stage], [cache], prompt.first_token, more)))

    def step(self) -> None:
        """Compute the next token of the sequence that was begun first, if there is one."""
        while self._going_on:
            request, followers = self._going_on[0]
            token = next(followers, None)
            if token is not None:
                self.tokens[request].append(token)
                return
            self._going_on.popleft()
