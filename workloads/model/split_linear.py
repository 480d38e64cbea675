"""A linear layer whose weight gradient can be deferred, for a split backward."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WeightGradient = Callable[[], None]
"""Computes one weight gradient and adds it to the weight's ``grad``."""


class DeferredGradients:
    """The weight gradients that backwards have deferred, in order."""

    def __init__(self) -> None:
        self._waiting: list[WeightGradient] = []

    def leave(self, gradient: WeightGradient) -> None:
        """Add ``gradient``, to be computed later."""
        self._waiting.append(gradient)

    def take(self) -> list[WeightGradient]:
        """Remove and return all gradients added since the last ``take``. The caller must compute them."""
        taken, self._waiting = self._waiting, []
        return taken


class Linear(nn.Module):
    """``x @ weight.T``, without a bias.

    With ``deferred`` set, a backward computes only the gradient of ``x``. It adds that of the weight to ``deferred``,
    as a function that holds ``x`` and the gradient of the output.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.deferred: DeferredGradients | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        if self.deferred is None:
            return functional.linear(x, self.weight)
        output: Tensor = _SplitLinear.apply(x, self.weight, self.deferred)  # type: ignore[no-untyped-call]
        return output


class _SplitLinear(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, deferred: DeferredGradients) -> Tensor:
        context.save_for_backward(x, weight)
        context.deferred = deferred
        return functional.linear(x, weight)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None]:
        (gradient,) = gradients
        x, weight = context.saved_tensors
        context.deferred.leave(partial(_accumulate, weight, x, gradient))
        return (gradient @ weight if context.needs_input_grad[0] else None), None, None


@torch.no_grad()
def _accumulate(weight: Tensor, x: Tensor, gradient: Tensor) -> None:
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    weight.grad.addmm_(gradient.flatten(0, -2).t(), x.flatten(0, -2))
