"""Estimate the memory of a measurement before it starts. Estimates are on the high side. Needs no torch."""

from workloads.inference.inference_model import InferenceModel
from workloads.model.gpt_config import GptConfig, bytes_per_element

_FP32_BYTES = 4
_ACTIVATIONS_PER_LAYER = 32
"""The number of context x hidden tensors that a layer holds in a backward with a deferred weight part.

18 are kept from the forward: inputs and outputs of both norms (4), queries, keys and values (3), outputs of attention
(2), the inner feed-forward layer before and after GELU (8), and one sum. Deferred gradients take 9, temporaries 5.
"""
_COPIES_OF_LOGITS = 3
"""Copies in fp32 besides the logits themselves: converted to fp32, their logarithms, and their gradient."""
_OF_ALL = 1.1
"""The factor for memory outside of tensors and for fragmentation."""

PRODUCT_MATRICES = 3
"""The matrices of the product that gives the ceiling: both factors and the result."""


def stage_bytes(config: GptConfig, stage: int, stages: int, precision: str) -> int:
    """Return the bytes for training a stage with one microbatch in flight.

    They contain weights and gradients in ``precision``; AdamW's two moments in fp32; for a lower precision also fp32
    copies of weights and gradients; the activations; and at the last stage the logits.
    """
    element_bytes = bytes_per_element(precision)
    parameters = config.parameters(stage, stages)
    per_parameter = 2 * element_bytes + 2 * _FP32_BYTES
    if element_bytes < _FP32_BYTES:
        per_parameter += 2 * _FP32_BYTES
    layers = len(config.layers_of(stage, stages))
    activations = layers * _ACTIVATIONS_PER_LAYER * config.activation_bytes(precision)
    logits = 0
    if stage == stages - 1:
        logits = config.context * config.vocabulary * (2 * element_bytes + _COPIES_OF_LOGITS * _FP32_BYTES)
    return round(_OF_ALL * (parameters * per_parameter + activations + logits))


def host_bytes(config: GptConfig, stage: int, stages: int, precision: str) -> int:
    """Return the bytes of host memory for building a stage for a GPU: its weights, and the largest of them in fp32."""
    weights = config.parameters(stage, stages) * bytes_per_element(precision)
    embeds = stage in (0, stages - 1)
    largest = max(4 * config.hidden**2, config.vocabulary * config.hidden if embeds else 0)
    return round(_OF_ALL * (weights + 2 * _FP32_BYTES * largest))


def prompt_bytes(model: InferenceModel, layers: int, tokens: int) -> int:
    """Return the bytes for prefilling ``tokens`` tokens through ``layers`` layers of the model, weights included."""
    whole = layers == model.layers
    weights = model.weight_bytes(layers, embedding=whole, head=whole)
    largest = max(model.hidden * model.feed_forward, model.vocabulary * model.hidden if whole else 0)
    activations = 4 * model.activation_bytes(tokens) + 4 * tokens * model.feed_forward * model.bytes_per_element
    keys_and_values = 2 * model.kv_bytes(layers, tokens)
    return round(_OF_ALL * (weights + 2 * _FP32_BYTES * largest + activations + keys_and_values))


def product_bytes(size: int, precision: str) -> int:
    """Return the bytes for the product of two square matrices, including those for creating them."""
    return round(_OF_ALL * size**2 * (PRODUCT_MATRICES * bytes_per_element(precision) + 2 * _FP32_BYTES))
