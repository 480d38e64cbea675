"""The layers of a Llama-shaped model with random weights, which do not depend on how the model is cut into stages.

Attention is causal and grouped-query: a chunk attends to itself and to all tokens before it, by torch's fused kernels.
Queries and keys are rotated by angles proportional to their position (rotary position embedding).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from wanbed.workloads.gpt.initial_weights import NormalWeights, draw_weights, undrawn_embedding, undrawn_module
from wanbed.workloads.inference.inference_model import InferenceModel
from wanbed.workloads.inference.key_value_cache import KVCache


def chunk_mask(tokens: int, prior_tokens: int, device: torch.device) -> Tensor | None:
    """Return what a chunk of ``tokens`` after ``prior_tokens`` attends to, as ``chunk_attention`` takes it.

    None for a first chunk, which is causal, and for a single token, which attends to all. Otherwise it is, on the CPU,
    a matrix (tokens, prior tokens + tokens) that is true where a token attends to a token. On a GPU it is torch's
    ``causal_lower_right``, which names the matrix without making it: FlashAttention takes no matrix, and the kernel
    that does takes no grouped queries, so that all scores would be written to memory in fp32.
    """
    if not prior_tokens or tokens == 1:
        return None
    end = prior_tokens + tokens
    if device.type == "cuda":
        # It loads torch's compiler, which takes a second, so processes that compute on the CPU do without.
        from torch.nn.attention.bias import causal_lower_right  # noqa: PLC0415

        return causal_lower_right(tokens, end)
    return torch.ones(tokens, end, dtype=torch.bool, device=device).tril(prior_tokens)


def chunk_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mixed values, of the shape of ``query``, (tokens, heads, head_dim).

    ``keys`` and ``values``, (prior tokens + tokens, kv_heads, head_dim), are those of the whole sequence so far.
    """
    grouped = True
    if query.is_cuda and query.dtype == torch.float32:
        # FlashAttention takes no fp32, and the other fused kernel no grouped queries: repeat each key and value head.
        queries_per_key = query.shape[1] // keys.shape[1]
        keys, values = (part.repeat_interleave(queries_per_key, dim=1) for part in (keys, values))
        grouped = False
    by_head = [part.transpose(0, 1).unsqueeze(0) for part in (query, keys, values)]
    mixed = functional.scaled_dot_product_attention(
        by_head[0],
        by_head[1],
        by_head[2],
        attn_mask=mask,
        is_causal=len(query) == len(keys),
        enable_gqa=grouped,
    )
    return mixed.squeeze(0).transpose(0, 1)


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


_NORM_EPSILON = 1e-5


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
        self.attention_norm = nn.RMSNorm(model.hidden, eps=_NORM_EPSILON)
        self.attention = GroupedQueryAttention(model)
        self.feed_forward_norm = nn.RMSNorm(model.hidden, eps=_NORM_EPSILON)
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
        self.norm = nn.RMSNorm(model.hidden, eps=_NORM_EPSILON) if is_last else None
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
