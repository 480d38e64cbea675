"""The initial weights of a model: normal values, the same bits on any number of cores and in any order.

Modules are built without the weights that torch would draw. The usual ways, ``nn.Embedding`` on the meta device and
``Module.to_empty``, load torch's compiler and its algebra of symbols, which takes a second in every process. Nothing
here does.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

_BLOCK_VALUES = 2**17
"""Values drawn at a time. In fp32 they stay in a core's cache, where they are rounded to a lower precision."""

_GROUP_VALUES = 16
"""torch draws normal values in groups of this many from as many uniform ones; fewer values are drawn in another way.

So blocks of whole groups have the values of one large draw, if the last one has at least one group.
"""

_BATCH_VALUES = 2**30
"""Weights drawn before they are copied to a device, so that the CPU's memory need not hold those of a whole model."""


class NormalWeights(NamedTuple):
    """A contiguous tensor that is to have normal values of mean 0, and the name of its parameter in the model."""

    name: str
    tensor: Tensor
    deviation: float


def draw_weights(weights: Iterable[NormalWeights], seed: int) -> None:
    """Fill the tensors. The CPU draws, on all cores that this process may use.

    The values of a tensor depend only on the seed, its name and its deviation: those of one ``normal_`` in fp32, with a
    generator of its own, rounded to the tensor's precision.
    """
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "weights") as threads:
        for batch in _batches(weights):
            on_host = [each if each.tensor.is_cpu else _beside(each) for each in batch]
            # The largest first, so that none of them is begun when the others are done. torch draws without the GIL.
            largest_first = sorted(on_host, key=lambda each: -each.tensor.numel())
            for done in [threads.submit(_draw, each, seed) for each in largest_first]:
                done.result()
            for each, drawn in zip(batch, on_host, strict=True):
                if drawn is not each:
                    each.tensor.detach().copy_(drawn.tensor)


def _batches(weights: Iterable[NormalWeights]) -> Iterator[list[NormalWeights]]:
    batch: list[NormalWeights] = []
    values_beside = 0
    for each in weights:
        values = 0 if each.tensor.is_cpu else each.tensor.numel()
        if batch and values_beside + values > _BATCH_VALUES:
            yield batch
            batch, values_beside = [], 0
        batch.append(each)
        values_beside += values
    yield batch


def _beside(weights: NormalWeights) -> NormalWeights:
    return weights._replace(tensor=torch.empty_like(weights.tensor, device="cpu"))


def _draw(weights: NormalWeights, seed: int) -> None:
    generator = _generator_of(seed, weights.name)
    values = weights.tensor.detach().view(-1)
    exact = values.dtype == torch.float32
    buffer = None if exact else torch.empty(_BLOCK_VALUES + _GROUP_VALUES, dtype=torch.float32)
    # The last block has up to a group more, because less than a group would be drawn in another way.
    starts = range(0, max(1, len(values) - _GROUP_VALUES + 1), _BLOCK_VALUES)
    for start in starts:
        block = values[start:] if start == starts[-1] else values[start : start + _BLOCK_VALUES]
        drawn = block if buffer is None else buffer[: len(block)]
        drawn.normal_(0, weights.deviation, generator=generator)
        if drawn is not block:
            block.copy_(drawn)


def _generator_of(seed: int, name: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


Built = TypeVar("Built", bound=nn.Module)


def undrawn_embedding(entries: int, width: int) -> nn.Embedding:
    """Return an embedding with undefined weights."""
    embedding: nn.Embedding = nn.Embedding.from_pretrained(  # type: ignore[no-untyped-call]
        torch.empty(entries, width), freeze=False
    )
    return embedding


def undrawn_module(build: Callable[[], Built], dtype: torch.dtype, device: torch.device) -> Built:
    """Return the module that ``build`` makes, with undefined weights of that precision in the memory of ``device``."""
    return placed_module(build, lambda _, shape: torch.empty(shape, dtype=dtype, device=device))


def placed_module(build: Callable[[], Built], place: Callable[[str, torch.Size], Tensor]) -> Built:
    """Return the module that ``build`` makes. Each parameter uses the memory that ``place`` returns for its name."""
    with torch.device("meta"):
        module = build()
    memory = {name: place(name, parameter.shape) for name, parameter in module.named_parameters()}
    module.load_state_dict(memory, assign=True)
    return module
