"""Memory of a hostile GPU: an arena whose freed blocks go to the next allocation at once, as CUDA's caching allocator
hands them out.
"""

import ctypes
import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

NAN_BYTE = 0xFF
"""Every floating-point number of such bytes is NaN, and every integer is -1."""

_SMALLEST_BLOCK_BYTES = 256


@cache
def _block_type(size_bytes: int) -> type[Any]:
    # A subclass, because ctypes' own arrays take no weak references.
    return type("Block", (ctypes.c_uint8 * size_bytes,), {})


class Arena:
    """``size_bytes`` of memory, NaN at first. A freed block keeps its contents, and its pool hands it out again first.

    A block is free when no tensor uses its memory any more, whatever is still enqueued to read or write it.
    """

    def __init__(self, size_bytes: int) -> None:
        self._bytes = torch.full((size_bytes,), NAN_BYTE, dtype=torch.uint8)
        self._base, self._size_bytes, self._top = self._bytes.data_ptr(), size_bytes, 0
        self._storage = self._bytes.untyped_storage()
        self._free: dict[tuple[Hashable, int], list[int]] = {}
        self._delayed: dict[int, Callable[[Callable[[], None]], None]] = {}

    def __contains__(self, tensor: Tensor) -> bool:
        return self._base <= tensor.data_ptr() < self._base + self._size_bytes

    def allocate(self, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, pool: Hashable) -> Tensor:
        """Return a tensor whose memory belongs to ``pool``: a block that was freed there, if one is large enough."""
        elements = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if all(size) else 1
        # Powers of two, so that tensors of many sizes reuse each other's memory.
        room = max(_SMALLEST_BLOCK_BYTES, 1 << (elements * dtype.itemsize - 1).bit_length())
        free = self._free.setdefault((pool, room), [])
        if free:
            offset = free.pop()
        else:
            offset, self._top = self._top, self._top + room
            assert self._top <= self._size_bytes, "the hostile GPU's memory is full"
        block = _block_type(room).from_address(self._base + offset)
        weakref.finalize(block, self._freed, free, offset).atexit = False
        storage = torch.frombuffer(block, dtype=torch.uint8).untyped_storage()
        return torch.empty(0, dtype=dtype).set_(storage, 0, tuple(size), tuple(stride))

    def delay_free(self, tensor: Tensor, delay: Callable[[Callable[[], None]], None]) -> None:
        """When the tensor's memory is freed, let ``delay`` decide when to call the function that makes it free."""
        self._delayed[tensor.data_ptr() - self._base] = delay

    def pointer(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the same bytes that keeps no memory allocated: all that an enqueued kernel has."""
        offset = (tensor.data_ptr() - self._base) // tensor.dtype.itemsize
        return torch.empty(0, dtype=tensor.dtype).set_(self._storage, offset, tensor.size(), tensor.stride())

    def _freed(self, free: list[int], offset: int) -> None:
        delay = self._delayed.pop(offset, None)
        if delay is None:
            free.append(offset)
        else:
            delay(lambda: free.append(offset))
