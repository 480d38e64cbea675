"""Build modules whose weights are drawn later, without those that torch would draw.

The usual ways, ``nn.Embedding`` on the meta device and ``Module.to_empty``, load torch's compiler and its algebra of
symbols, which takes a second in every process. Nothing here does.
"""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

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
