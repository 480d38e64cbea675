"""Estimate how much memory a measurement takes, before anything is loaded: a careful estimate. Needs no torch."""

from workloads.inference.inference_model import InferenceModel
from workloads.model.gpt_config import GptConfig, bytes_per_element

_FP32_BYTES = 4
_ACTIVATIONS_PER_LAYER = 32
"""Tensors of context x hidden that a layer keeps or passes through in a backward whose weight part waits.

Kept from the forward are 18: what enters and leaves each norm (4), queries, keys and values (3), what attention gives
(2), the inside of the feed-forward layer before and after GELU (8), and a sum. Gradients that wait take 9, and 5 are on
their way.
"""
_COPIES_OF_LOGITS = 3
"""In fp32, beside the logits themselves: rounded up, their logarithms, and their gradient."""
_OF_ALL = 1.1
"""For what memory is taken up beside tensors, and between them."""

PRODUCT_MATRICES = 3
"""Of the product that gives the ceiling: both factors and what comes out."""


def stage_bytes(config: GptConfig, stage: int, stages: int, precision: str) -> int:
    """Return the bytes of training a stage with one microbatch in flight.

    They hold weights and gradients in the precision, AdamW's two moments in fp32, and for weights in a lower precision
    a copy of them in fp32 and the gradients on their way to it; activations, and at the last stage the logits.
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
    """Return the CPU's bytes while a stage for a GPU is made: its weights, and the largest of them in fp32."""
    weights = config.parameters(stage, stages) * bytes_per_element(precision)
    embeds = stage in (0, stages - 1)
    largest = max(4 * config.hidden**2, config.vocabulary * config.hidden if embeds else 0)
    return round(_OF_ALL * (weights + 2 * _FP32_BYTES * largest))


def prompt_bytes(model: InferenceModel, layers: int, tokens: int) -> int:
    """Return the bytes of prefilling ``tokens`` through ``layers`` of the model's layers, weights included."""
    whole = layers == model.layers
    weights = model.weight_bytes(layers, embedding=whole, head=whole)
    largest = max(model.hidden * model.feed_forward, model.vocabulary * model.hidden if whole else 0)
    activations = 4 * model.activation_bytes(tokens) + 4 * tokens * model.feed_forward * model.bytes_per_element
    keys_and_values = 2 * model.kv_bytes(layers, tokens)
    return round(_OF_ALL * (weights + 2 * _FP32_BYTES * largest + activations + keys_and_values))


def product_bytes(size: int, precision: str) -> int:
    """Return the bytes of the product of two square matrices while they are made."""
    return round(_OF_ALL * size**2 * (PRODUCT_MATRICES * bytes_per_element(precision) + 2 * _FP32_BYTES))
