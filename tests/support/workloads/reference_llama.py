"""The reference for cut and interrupted inference: the whole model over the whole sequence at once, in fp64."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from wanbed.workloads.inference.inference_model import INFERENCE_MODELS
from wanbed.workloads.inference.llama_layers import build_layers

TINY = INFERENCE_MODELS["llama-tiny"]
SEED = 11

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """Keys and values of each layer, (tokens, kv_heads, head_dim), and the logits after each token."""

    keys: list[Array]
    values: list[Array]
    logits: Array


@cache
def tiny_weights() -> dict[str, Array]:
    module = build_layers(TINY, range(TINY.layers), seed=SEED, dtype=torch.float32, device=torch.device("cpu"))
    return {name: parameter.double().numpy() for name, parameter in module.named_parameters()}


def one_shot(tokens: list[int]) -> Reference:
    """Compute every sum explicitly, without cache or chunks. No token attends to a later one."""
    weights = tiny_weights()
    x = weights["tokens.weight"][tokens]
    all_keys, all_values = [], []
    for layer in range(TINY.layers):
        of_layer = {name.split(".", 2)[2]: weights[name] for name in weights if name.startswith(f"layers.{layer}.")}
        normed = rms_normed(x, of_layer["attention_norm.weight"])
        queries = turned(in_heads(normed @ of_layer["attention.query.weight"].T))
        keys = turned(in_heads(normed @ of_layer["attention.key.weight"].T))
        values = in_heads(normed @ of_layer["attention.value.weight"].T)
        x = x + attended(queries, keys, values) @ of_layer["attention.output.weight"].T
        normed = rms_normed(x, of_layer["feed_forward_norm.weight"])
        gate = normed @ of_layer["feed_forward.gate.weight"].T
        inner = gate / (1 + np.exp(-gate)) * (normed @ of_layer["feed_forward.inner.weight"].T)
        x = x + inner @ of_layer["feed_forward.output.weight"].T
        all_keys.append(keys)
        all_values.append(values)
    return Reference(all_keys, all_values, rms_normed(x, weights["norm.weight"]) @ weights["head.weight"].T)


def rms_normed(x: Array, weight: Array) -> Array:
    normed: Array = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5) * weight
    return normed


def in_heads(x: Array) -> Array:
    return x.reshape(len(x), -1, TINY.head_dim)


def turned(x: Array) -> Array:
    """The two halves of a head as complex numbers, multiplied by e^(i position angle)."""
    half = TINY.head_dim // 2
    angles = np.arange(len(x))[:, None] * 500_000.0 ** -(np.arange(half) / half)
    points = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)[:, None, :]
    return np.concatenate([points.real, points.imag], axis=2)


def attended(queries: Array, keys: Array, values: Array) -> Array:
    """Token by token and head by head, each over the tokens up to its own."""
    mixed = np.empty_like(queries)
    for token in range(len(queries)):
        for head in range(TINY.heads):
            shared = head * TINY.kv_heads // TINY.heads
            scores = keys[: token + 1, shared] @ queries[token, head] / np.sqrt(TINY.head_dim)
            shares = np.exp(scores - scores.max())
            mixed[token, head] = shares / shares.sum() @ values[: token + 1, shared]
    return mixed.reshape(len(queries), -1)
