"""Convert tensors to the bytes that go over the wire, and back: the same memory, never a copy."""

import torch
from torch import Tensor


def as_tensor(data: memoryview, dtype: torch.dtype) -> Tensor:
    """Return the elements of ``data`` as a flat tensor that lives in its memory."""
    return torch.frombuffer(data, dtype=dtype)


def as_bytes(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor in the CPU's memory, writable; they keep that memory alive."""
    # Through bytes, because numpy knows no bfloat16.
    return tensor.detach().view(-1).view(torch.uint8).numpy().data
