"""Convert tensors to bytes for the network and back. Both use the same memory, never a copy."""

import torch
from torch import Tensor


def as_tensor(data: memoryview, dtype: torch.dtype) -> Tensor:
    """Return the elements of ``data`` as a flat tensor in the same memory."""
    return torch.frombuffer(data, dtype=dtype)


def as_bytes(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor in host memory, writable. They keep that memory alive."""
    # Viewed as uint8, because numpy has no bfloat16.
    return tensor.detach().view(-1).view(torch.uint8).numpy().data
