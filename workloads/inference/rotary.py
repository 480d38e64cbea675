"""Rotary position embedding: rotate each token's queries and keys by angles proportional to its position."""

import torch
from torch import Tensor

ROTARY_BASE = 500_000.0
"""The base of the angles, from Llama 3."""


class Rotation:
    """The rotations of the tokens at ``positions``, counted from the start of their sequence.

    Element i of a head's first half and element i of its second half are the coordinates of a point, rotated by
    position x base^(-2 i / head_dim) (Su et al., "RoFormer", 2021). Angles are computed in fp64: in fp32 they would be
    off by a hundredth at position 100,000.
    """

    def __init__(self, head_dim: int, positions: range, device: torch.device) -> None:
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim
        places = torch.arange(positions.start, positions.stop, dtype=torch.float64, device=device)
        angles = torch.outer(places, ROTARY_BASE**-exponents).unsqueeze(1)
        self._cosine, self._sine = angles.cos().float(), angles.sin().float()

    def apply(self, x: Tensor) -> Tensor:
        """Rotate ``x``, (tokens, heads, head_dim), computing in fp32. The result has the precision of ``x``."""
        first, second = x.float().chunk(2, dim=2)
        turned = first * self._cosine - second * self._sine, second * self._cosine + first * self._sine
        return torch.cat(turned, dim=2).to(x.dtype)
