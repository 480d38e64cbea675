"""A decoder-only GPT, divided into stages that together compute the same as the whole model.

The weight gradients of its linear layers can be deferred, for a split backward.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.initial_weights import NormalWeights, draw_weights, undrawn_embedding, undrawn_module


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


DTYPES: Mapping[str, torch.dtype] = MappingProxyType({"fp32": torch.float32, "bf16": torch.bfloat16})

_WEIGHT_DEVIATION = 0.02


class Attention(nn.Module):
    """Causal self-attention with several heads, by torch's fused kernels."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.query_key_value = Linear(config.hidden, 3 * config.hidden)
        self.output = Linear(config.hidden, config.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, L, H) to (B, L, H)."""
        batch, length, hidden = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, hidden // self.heads).transpose(1, 2)
            for part in self.query_key_value(x).split(hidden, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        output: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, length, hidden))
        return output


class FeedForward(nn.Module):
    """Two linear layers with GELU between them. The inner width is four times the hidden size."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.inner = Linear(config.hidden, 4 * config.hidden)
        self.output = Linear(4 * config.hidden, config.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, L, H) to (B, L, H)."""
        output: Tensor = self.output(functional.gelu(self.inner(x)))
        return output


class Block(nn.Module):
    """One pre-norm layer: attention and feed-forward, each after a norm, each added to its input."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, L, H) to (B, L, H)."""
        x = x + self.attention(self.attention_norm(x))
        output: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return output


class GptStage(nn.Module):
    """Consecutive ``layers`` of a GPT: one stage, or all of it. All stages in order are the whole GPT.

    With the first layer comes the embedding, with the last one the final norm and the head.

    Parameters have their names in the whole model, e.g. ``layers.5.attention.output.weight`` in whichever stage has
    layer 5, so that no two stages share a name. Linear layers have no bias: a bias on the keys does not change the
    loss, so its gradient would be rounding noise, from which AdamW would make steps of full size.
    """

    def __init__(self, config: GptConfig, layers: range) -> None:
        super().__init__()
        first, last = layers.start == 0, layers.stop == config.layers
        self.tokens = undrawn_embedding(config.vocabulary, config.hidden) if first else None
        self.positions = undrawn_embedding(config.context, config.hidden) if first else None
        self.layers = nn.ModuleDict({str(layer): Block(config) for layer in layers})
        self.norm = nn.LayerNorm(config.hidden) if last else None
        self.head = Linear(config.hidden, config.vocabulary) if last else None

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, L, H) to (B, L, H) through this stage's layers. L is at most the context.

        The first stage takes token numbers, (B, L) int64. The last stage returns logits, (B, L, vocabulary).
        """
        if self.tokens is not None and self.positions is not None:
            x = self.tokens(x) + self.positions.weight[: x.shape[1]]
        for block in self.layers.values():
            x = block(x)
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x))
        return x

    def defer_weight_gradients(self, deferred: DeferredGradients) -> None:
        """From now on, let backwards add the weight gradients of linear layers to ``deferred``.

        Backwards still compute the gradients of norms and embeddings, which need no matrix product.
        """
        for module in self.modules():
            if isinstance(module, Linear):
                module.deferred = deferred


def build_stage(config: GptConfig, stage: int, stages: int, seed: int, dtype: torch.dtype) -> GptStage:
    """Build a stage with its initial weights, on the CPU.

    A weight depends only on the seed and its parameter's name, so it is the same however the model is divided. In a
    lower precision it is the rounded fp32 value. As in GPT-2, weights are normally distributed with a deviation of
    0.02, divided by sqrt(2 layers) where the output is added to the layer's input. Norms start as the identity. Raise
    ValueError if there is no such stage.
    """
    layers = config.layers_of(stage, stages)
    module = undrawn_module(lambda: GptStage(config, layers), dtype, torch.device("cpu"))
    residual_deviation = _WEIGHT_DEVIATION / math.sqrt(2 * config.layers)
    drawn = []
    for name, parameter in module.named_parameters():
        owner, _, part = name.rpartition(".")
        if owner.endswith("norm"):
            parameter.detach().fill_(1 if part == "weight" else 0)
        else:
            deviation = residual_deviation if owner.endswith(".output") else _WEIGHT_DEVIATION
            drawn.append(NormalWeights(name, parameter, deviation))
    draw_weights(drawn, seed)
    return module


def language_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy, in fp32, of logits (B, L, vocabulary) against the next tokens, (B, L)."""
    return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
