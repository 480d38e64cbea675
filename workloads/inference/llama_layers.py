"""The layers of a Llama-shaped model with random weights, which do not depend on how the model is cut into stages."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from wanbed.workloads.inference.chunk_attention import chunk_attention, chunk_mask
from wanbed.workloads.inference.inference_model import InferenceModel
from wanbed.workloads.inference.key_value_cache import KVCache
from wanbed.workloads.inference.rotary import Rotation
from wanbed.workloads.model.normal_weights import NormalWeights, draw_weights
from wanbed.workloads.model.undrawn_module import undrawn_embedding, undrawn_module

NORM_EPSILON = 1e-5


@dataclass(frozen=True)
class ChunkPlace:
    """The place of a chunk in its sequence, shared by all layers. ``mask`` is that of ``chunk_mask``."""

    cache: KVCache
    prior_tokens: int
    rotation: Rotation
    mask: Tensor | None


def place_chunk(model: InferenceModel, cache: KVCache, tokens: int, device: torch.device) -> ChunkPlace:
    """Return the place of the next ``tokens`` tokens of the sequence in ``cache``."""
    prior_tokens = cache.tokens
    rotation = Rotation(model.head_dim, range(prior_tokens, prior_tokens + tokens), device)
    return ChunkPlace(cache, prior_tokens, rotation, chunk_mask(tokens, prior_tokens, device))


class GroupedQueryAttention(nn.Module):
    """Causal grouped-query self-attention by torch's fused kernels: several query heads share a key and value head."""

    def __init__(self, model: InferenceModel) -> None:
        super().__init__()
        self.head_dim = model.head_dim
        self.query = nn.Linear(model.hidden, model.heads * model.head_dim, bias=False)
        self.key = nn.Linear(model.hidden, model.kv_heads * model.head_dim, bias=False)
        self.value = nn.Linear(model.hidden, model.kv_heads * model.head_dim, bias=False)
        self.output = nn.Linear(model.heads * model.head_dim, model.hidden, bias=False)

    def forward(self, x: Tensor, layer: int, place: ChunkPlace) -> Tensor:
        """Map (tokens, hidden) to (tokens, hidden). Keys and values stay in the cache."""
        query, key, value = (part(x).view(len(x), -1, self.head_dim) for part in (self.query, self.key, self.value))
        query, key = place.rotation.apply(query), place.rotation.apply(key)
        keys, values = place.cache.store(layer, place.prior_tokens, key, value)
        mixed = chunk_attention(query, keys, values, place.mask)
        output: Tensor = self.output(mixed.reshape(len(x), -1))
        return output


class GatedFeedForward(nn.Module):
    """SwiGLU: a linear layer gated by the SiLU of another one, and a third one back to the hidden size."""

    def __init__(self, model: InferenceModel) -> None:
        super().__init__()
        self.gate = nn.Linear(model.hidden, model.feed_forward, bias=False)
        self.inner = nn.Linear(model.hidden, model.feed_forward, bias=False)
        self.output = nn.Linear(model.feed_forward, model.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (tokens, hidden) to (tokens, hidden)."""
        output: Tensor = self.output(functional.silu(self.gate(x)) * self.inner(x))
        return output


class Layer(nn.Module):
    """One layer: attention and feed-forward, each after a norm and with a residual connection."""

    def __init__(self, model: InferenceModel, number: int) -> None:
        super().__init__()
        self.number = number
        self.attention_norm = nn.RMSNorm(model.hidden, eps=NORM_EPSILON)
        self.attention = GroupedQueryAttention(model)
        self.feed_forward_norm = nn.RMSNorm(model.hidden, eps=NORM_EPSILON)
        self.feed_forward = GatedFeedForward(model)

    def forward(self, x: Tensor, place: ChunkPlace) -> Tensor:
        """Map (tokens, hidden) to (tokens, hidden). Keys and values stay in the cache."""
        x = x + self.attention(self.attention_norm(x), self.number, place)
        output: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return output


class LlamaLayers(nn.Module):
    """Consecutive layers, with the token embedding if they are the model's first, with norm and head if its last.

    Parameters have their names in the whole model: layer 5 has ``layers.5.attention.output.weight`` in any stage.
    """

    def __init__(self, model: InferenceModel, layers: range) -> None:
        super().__init__()
        is_last = layers.stop == model.layers
        self.tokens = undrawn_embedding(model.vocabulary, model.hidden) if layers.start == 0 else None
        self.layers = nn.ModuleDict({str(number): Layer(model, number) for number in layers})
        self.norm = nn.RMSNorm(model.hidden, eps=NORM_EPSILON) if is_last else None
        self.head = nn.Linear(model.hidden, model.vocabulary, bias=False) if is_last else None


def build_layers(
    model: InferenceModel, layers: range, *, seed: int, dtype: torch.dtype, device: torch.device
) -> LlamaLayers:
    """Build layers with random weights that need no gradient.

    A weight depends only on the seed and its parameter's name. In a lower precision it is the fp32 weight, rounded.
    Weights are normally distributed, with a standard deviation of 1 / sqrt(inputs) in linear layers and 1 in the
    embedding, so that activations stay of the order of one at any width and outputs depend on all inputs. Norms start
    as the identity.
    """
    module = undrawn_module(lambda: LlamaLayers(model, layers).requires_grad_(False), dtype, device)
    drawn = []
    for name, parameter in module.named_parameters():
        if parameter.dim() == 1:
            parameter.fill_(1)
        else:
            deviation = 1 if name == "tokens.weight" else parameter.shape[1] ** -0.5
            drawn.append(NormalWeights(name, parameter, deviation))
    draw_weights(drawn, seed)
    return module
