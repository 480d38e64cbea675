"""A stage's weights and gradients as two flat tensors, and the optimizer over them."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

_BETAS, _EPSILON, _WEIGHT_DECAY = (0.9, 0.999), 1e-8, 0.01
"""The defaults of ``torch.optim.AdamW``."""


class FlatParameters:
    """The parameters of modules in one flat tensor ``weights``, and their gradients in ``gradients``.

    Each parameter and its ``grad`` become views of the two, in the order of ``named_parameters``. So backwards add to
    ``gradients`` in place, and an all-reduce there changes every ``grad``. ``update`` is a step of AdamW with torch's
    defaults (betas 0.9 and 0.999, eps 1e-8, weight decay 0.01) over all elements alike. Weights in a lower precision
    are the rounded values of a copy in fp32, which AdamW updates.

    ``allocate`` returns the memory of weights and gradients; None: that of the modules' device.
    """

    def __init__(
        self,
        modules: nn.Module | Sequence[nn.Module],
        learning_rate: float,
        allocate: Callable[[int, torch.dtype], Tensor] | None = None,
    ) -> None:
        several = [modules] if isinstance(modules, nn.Module) else modules
        self._named = {name: parameter for module in several for name, parameter in module.named_parameters()}
        first = next(iter(self._named.values()))
        count = sum(parameter.numel() for parameter in self._named.values())
        if allocate is None:
            self.weights = torch.empty(count, dtype=first.dtype, device=first.device)
            self.gradients = torch.zeros_like(self.weights)
        else:
            self.weights, self.gradients = allocate(count, first.dtype), allocate(count, first.dtype).zero_()
        start = 0
        for parameter in self._named.values():
            part = slice(start, start + parameter.numel())
            start = part.stop
            self.weights[part].copy_(parameter.detach().view(-1))
            parameter.data = self.weights[part].view(parameter.shape)
            parameter.grad = self.gradients[part].view(parameter.shape)
        self._exact = self.weights if first.dtype == torch.float32 else self.weights.float()
        self._learning_rate = learning_rate
        self._mean, self._mean_square = torch.zeros_like(self._exact), torch.zeros_like(self._exact)
        self._steps = torch.zeros((), dtype=torch.float32, device=first.device)

    def parts(self) -> dict[nn.Parameter, tuple[int, int]]:
        """Return the elements of each parameter's gradient in ``gradients``: the first, and the one after the last."""
        found, start = {}, 0
        for parameter in self._named.values():
            found[parameter] = start, start + parameter.numel()
            start += parameter.numel()
        return found

    def squares(self) -> float:
        """Return the sum of the squares of all gradients, in fp32. It waits for the device."""
        return float(torch.linalg.vector_norm(self.gradients, dtype=torch.float32)) ** 2

    def update(self) -> None:
        """Take one step of AdamW."""
        # torch.optim.AdamW does the same, but imports torch's compiler, which takes a second in every rank.
        with torch.no_grad():
            adamw(
                [self._exact],
                [self.gradients.to(self._exact.dtype)],
                [self._mean],
                [self._mean_square],
                [],
                [self._steps],
                foreach=False,
                fused=True,
                amsgrad=False,
                maximize=False,
                beta1=_BETAS[0],
                beta2=_BETAS[1],
                lr=self._learning_rate,
                weight_decay=_WEIGHT_DECAY,
                eps=_EPSILON,
            )
        self.exact_changed()

    @property
    def exact(self) -> Tensor:
        """All weights in fp32, flat, as AdamW updates them. Call ``exact_changed`` after a change."""
        return self._exact

    def exact_changed(self) -> None:
        """Take over what was written into ``exact``. The state of AdamW stays as it is."""
        if self._exact is not self.weights:
            self.weights.copy_(self._exact)

    @property
    def steps(self) -> int:
        """The number of steps that AdamW has taken."""
        return int(self._steps)

    def named_state(self) -> Iterator[tuple[str, tuple[Tensor, Tensor, Tensor]]]:
        """Yield each parameter's name, and its weights in fp32 with AdamW's mean and mean square: views, flat."""
        start = 0
        for name, parameter in self._named.items():
            part = slice(start, start + parameter.numel())
            start = part.stop
            yield name, (self._exact[part], self._mean[part], self._mean_square[part])

    def restored(self, steps: int) -> None:
        """Go on after so many steps, with what was written into the views of ``named_state``."""
        self._steps.fill_(steps)
        self.exact_changed()

    def named_weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield each parameter's name and the parameter itself."""
        yield from self._named.items()

    def gradient_arrays(self) -> dict[str, npt.NDArray[np.float32]]:
        """Return an fp32 copy of each parameter's gradient in host memory, by its name."""
        return {name: gradient.float().cpu().numpy().copy() for name, gradient in self.named_gradients()}

    def named_gradients(self) -> Iterator[tuple[str, Tensor]]:
        """Yield each parameter's name and its gradient, a view."""
        for name, parameter in self._named.items():
            assert parameter.grad is not None
            yield name, parameter.grad
