"""A linear layer whose weight gradient can be deferred, for a split backward."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class WeightGradient:
    """The gradient of ``weight``, not computed yet: of a layer's input ``x`` and the gradient of its output."""

    weight: Tensor
    x: Tensor
    output_gradient: Tensor

    @torch.no_grad()
    def __call__(self) -> None:
        """Compute the gradient and add it to the weight's ``grad``."""
        if self.weight.grad is None:
            self.weight.grad = torch.zeros_like(self.weight)
        self.weight.grad.addmm_(self.output_gradient.flatten(0, -2).t(), self.x.flatten(0, -2))


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
        context.deferred.leave(WeightGradient(weight, x, gradient))
        return (gradient @ weight if context.needs_input_grad[0] else None), None, None
