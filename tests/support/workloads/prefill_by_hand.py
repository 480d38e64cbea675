"""Prefill over a pipeline of stages, one layer at a time, in any order of sequences and stages that a test chooses."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, pairwise
from random import Random

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.support.workloads.reference_llama import SEED, TINY
from wanbed.workloads.compute.device.torch_device import CpuDevice, as_bytes
from wanbed.workloads.inference.inference_stage import InferenceStage, PrefillChunk
from wanbed.workloads.inference.key_value_cache import KVCache

CPU = CpuDevice()


@cache
def tiny_stage(layers: range) -> InferenceStage:
    return InferenceStage(TINY, layers, seed=SEED, device=CPU, precision="fp32")


def whole_model() -> InferenceStage:
    return tiny_stage(range(TINY.layers))


def tiny_stages(depth: int) -> list[InferenceStage]:
    ends = list(accumulate(TINY.stage_layers(depth), initial=0))
    return [tiny_stage(range(start, end)) for start, end in pairwise(ends)]


def moved(payload: memoryview) -> memoryview:
    """Return a copy of the bytes, as another host has them."""
    return memoryview(bytearray(payload))


@dataclass
class PrefillByHand:
    """One prompt on its way through stages, cut after the tokens in ``chunk_ends``; the last of them is its length."""

    prompt: list[int]
    chunk_ends: list[int]
    stages: Sequence[InferenceStage]
    caches: list[KVCache] = field(init=False)
    logits: Tensor | None = None

    def __post_init__(self) -> None:
        self.caches = [stage.new_cache(len(self.prompt)) for stage in self.stages]
        chunks = [torch.tensor(self.prompt[start:end]) for start, end in pairwise([0, *self.chunk_ends])]
        self._inputs: list[deque[Tensor]] = [deque(chunks), *(deque() for _ in self.stages[1:])]
        self._running: list[PrefillChunk | None] = [None for _ in self.stages]

    def ready(self) -> list[int]:
        """Return the stages that have a layer to run now."""
        return [stage for stage, inputs in enumerate(self._inputs) if inputs]

    def run_layer(self, stage: int) -> None:
        """Run the next layer of the first chunk in a stage's queue. Its last layer sends the output on."""
        chunk = self._running[stage]
        if chunk is None:
            prior = self.caches[stage].tokens
            chunk = self._running[stage] = self.stages[stage].begin_chunk(
                self.caches[stage], self._inputs[stage][0], prior
            )
        if chunk.step():
            return
        self._inputs[stage].popleft()
        self._running[stage] = None
        if self.stages[stage].is_last:
            self.logits = chunk.outputs
        else:
            sent = as_bytes(CPU.on_host(chunk.outputs))
            self._inputs[stage + 1].append(self.stages[stage + 1].hidden_states(moved(sent)))

    def give_up(self, stage: int) -> None:
        """Abandon a stage's chunk, which begins again."""
        self._running[stage] = None

    def run(self) -> "PrefillByHand":
        while ready := self.ready():
            self.run_layer(ready[0])
        return self

    def cache_on_another_host(self, capacity: int) -> KVCache:
        """The caches of all stages, moved by layers into one."""
        together = whole_model().new_cache(capacity)
        for cache_of_stage in self.caches:
            for layer in cache_of_stage.layers:
                together.load(range(layer, layer + 1), moved(cache_of_stage.layer_bytes(layer)))
        return together


def run_interleaved(prefills: Sequence[PrefillByHand], seed: int) -> None:
    """Run all prefills to their end, each next layer a random one of those that could run.

    One time in ten the chunk that is chosen loses what it has done in its stage instead.
    """
    order = Random(seed)
    while ready := [(prefill, stage) for prefill in prefills for stage in prefill.ready()]:
        prefill, stage = order.choice(ready)
        if order.random() < 0.1:
            prefill.give_up(stage)
        else:
            prefill.run_layer(stage)


def orders() -> st.SearchStrategy[int]:
    return st.integers(0, 2**32)


def prompts(longest: int = 32) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, TINY.vocabulary - 1), min_size=1, max_size=longest)


@st.composite
def prefills(draw: st.DrawFn, longest: int = 32) -> PrefillByHand:
    """A prompt, cut into chunks anywhere, over a pipeline of depth 1, 2, 4 or 8."""
    prompt = draw(prompts(longest))
    ends = draw(st.sets(st.integers(1, len(prompt)), max_size=5)) | {len(prompt)}
    return PrefillByHand(prompt, sorted(ends), tiny_stages(draw(st.sampled_from([1, 2, 4, 8]))))
