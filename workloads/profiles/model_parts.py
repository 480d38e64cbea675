"""Choose the stages to measure, derive the times of a model's parts from them, and estimate the memory beforehand.

Estimates are on the high side. Needs no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from wanbed.workloads.gpt.gpt_config import GptConfig, bytes_per_element
from wanbed.workloads.inference.inference_model import InferenceModel
from wanbed.workloads.profiles.compute_profile import MeasuredModel, MeasuredStage, ModelTimes, PartTimes, measured_time

Position: TypeAlias = Literal["first", "middle", "last"]

POSITIONS: tuple[Position, ...] = ("first", "middle", "last")


@dataclass(frozen=True)
class StageToMeasure:
    """Stage ``stage`` of the three stages of ``config``, which all have the same number of layers."""

    position: Position
    config: GptConfig
    stage: int

    @property
    def layers(self) -> int:
        """The number of the stage's layers."""
        return len(self.config.layers_of(self.stage, len(POSITIONS)))

    def measured(self, repeats_ns: Mapping[str, Sequence[int]], clock_hz: int | None = None) -> MeasuredStage:
        """Return the measured stage from the repeats of each of its actions, measured at that clock."""
        return MeasuredStage(
            position=self.position,
            layers=self.layers,
            forward_flops=self.config.causal_forward_flops(self.stage, len(POSITIONS)),
            **{action: measured_time(times_ns, clock_hz) for action, times_ns in repeats_ns.items()},
        )


def stages_to_measure(config: GptConfig, layers: int) -> tuple[StageToMeasure, ...]:
    """Return a first, a middle and a last stage of ``layers`` layers each, with the other dimensions of ``config``."""
    three = replace(config, layers=layers * len(POSITIONS))
    return tuple(StageToMeasure(position, three, stage) for stage, position in enumerate(POSITIONS))


def model_times(config: GptConfig, stages: Sequence[MeasuredStage]) -> ModelTimes:
    """Return the times of a model's parts, from the medians of its first, middle and last stage.

    The three stages have the same number of layers. The time of a layer is that of the middle stage divided by its
    layers. The times of the embedding and the head are those of the first and the last stage minus that of the middle
    one, 0 if negative. So a model whose stages have that number of layers gets the measured times, up to rounding.
    """
    first, middle, last = ({name: time.median_ns for name, time in stage.times()} for stage in stages)
    layers = stages[1].layers

    def beyond(stage_ns: Mapping[str, int]) -> PartTimes:
        return PartTimes(**{f"{action}_ns": max(0, stage_ns[action] - middle[action]) for action in middle})

    return ModelTimes(
        model=MeasuredModel(
            hidden=config.hidden, context=config.context, heads=config.heads, vocabulary=config.vocabulary
        ),
        embedding=beyond(first),
        layer=PartTimes(**{f"{action}_ns": round(time_ns / layers) for action, time_ns in middle.items()}),
        head=beyond(last),
        stages=tuple(stages),
    )


_FP32_BYTES = 4

_KEPT_TENSORS = 16
"""The context x hidden tensors that a layer keeps from the forward of a microbatch to its backward.

Inputs and outputs of both norms (4), queries, keys and values (3), the output of attention (1), and the inner
feed-forward layer before and after GELU (8). The input part of a split backward leaves as many to the weight part: the
inputs of the linear layers (7) and the gradients of their outputs (9).
"""

_KEPT_NUMBERS = 4
"""The fp32 numbers that a layer's two norms keep for each token. Attention keeps another one for each head."""

_BACKWARD_TENSORS = 5
"""The context x hidden tensors that a backward takes at once, beside those that were kept: gradients of one layer."""

_SPLIT_BACKWARD_TENSORS = 8
"""The same of the input part of a split backward, whose gradients are kept for the weight part."""

_LOSS_TENSORS = 2
"""Copies of the logits in fp32 that the backward of the loss takes at once, beside the one that was kept."""

_OF_ALL = 1.1
"""The factor for memory outside of tensors and for fragmentation."""

_PRODUCT_MATRICES = 3
"""The matrices of the product that gives the ceiling: both factors and the result."""


@dataclass(frozen=True)
class TrainingMemory:
    """The bytes for training one stage, by what they hold. ``total_bytes`` also has what lies outside of tensors."""

    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it, and a tenth beyond it for memory outside of tensors and for fragmentation."""
        parts = self.weight_bytes + self.gradient_bytes + self.optimizer_bytes + self.activation_bytes
        return round(_OF_ALL * parts)


def together(parts: Sequence[TrainingMemory]) -> TrainingMemory:
    """Return the memory for training several parts of a model on one GPU."""
    return TrainingMemory(
        weight_bytes=sum(part.weight_bytes for part in parts),
        gradient_bytes=sum(part.gradient_bytes for part in parts),
        optimizer_bytes=sum(part.optimizer_bytes for part in parts),
        activation_bytes=sum(part.activation_bytes for part in parts),
    )


def training_memory(
    config: GptConfig,
    stage: int,
    stages: int,
    precision: str,
    *,
    in_flight: int = 1,
    recompute: bool = True,
    splits: bool = False,
) -> TrainingMemory:
    """Return the memory for training a stage with ``in_flight`` microbatches between their forward and backward.

    Weights and gradients are in ``precision``; AdamW's two moments in fp32; for a lower precision also fp32 copies of
    weights and gradients. One microbatch is in its backward. Each other one has kept what its forward computed, or only
    its input if the stage recomputes. If the stage ``splits`` backwards, each may be one whose weight part is still to
    come. The last stage keeps logits too, once in fp32.
    """
    element_bytes = bytes_per_element(precision)
    parameters = config.parameters(stage, stages)
    copies = int(element_bytes < _FP32_BYTES)
    layers, is_last = len(config.layers_of(stage, stages)), stage == stages - 1
    activation = config.activation_bytes(precision)
    logits = config.context * config.vocabulary if is_last else 0
    numbers = layers * (_KEPT_NUMBERS + config.heads) * config.context * _FP32_BYTES
    # The final norm keeps its input and its output.
    forward = (layers * _KEPT_TENSORS + 2 * is_last) * activation + numbers + logits * _FP32_BYTES
    # With the gradient that was received, or that of the final norm's output and the logits.
    deferred = (layers * _KEPT_TENSORS + 1 + is_last) * activation + logits * element_bytes
    computed = (_SPLIT_BACKWARD_TENSORS if splits else _BACKWARD_TENSORS) * activation
    weight_gradient = config.largest_matrix_weights(stage, stages) * element_bytes
    now = forward + activation + max(computed + weight_gradient, _LOSS_TENSORS * _FP32_BYTES * logits)
    # Recomputing needs the input, which are tokens at the first stage. The output is free once it has been sent.
    kept = (activation if stage else 0) if recompute else forward
    if splits:
        kept = max(kept, deferred)
    return TrainingMemory(
        weight_bytes=parameters * element_bytes,
        gradient_bytes=parameters * element_bytes,
        optimizer_bytes=parameters * (2 + 2 * copies) * _FP32_BYTES,
        activation_bytes=now + (in_flight - 1) * kept,
    )


def swapped_memory(
    config: GptConfig, precision: str, *, microbatches: int, memory_bytes: int | None, on_cpu: bool
) -> TrainingMemory:
    """Return the memory for training a whole model whose groups of layers are swapped through a device.

    ``memory_bytes`` is what the device has for the weights of two groups, None for no limit, and again for their
    gradients. Each microbatch keeps at most the input of every layer. Everything else lies in host memory, which is the
    device's own ``on_cpu``.
    """
    whole = training_memory(config, 0, 1, precision)
    held = whole.weight_bytes if memory_bytes is None else min(whole.weight_bytes, memory_bytes)
    kept = microbatches * config.layers * config.activation_bytes(precision)
    copies = int(on_cpu)
    return TrainingMemory(
        weight_bytes=held + copies * whole.weight_bytes,
        gradient_bytes=held + copies * whole.gradient_bytes,
        optimizer_bytes=copies * whole.optimizer_bytes,
        activation_bytes=whole.activation_bytes + kept,
    )


def stage_bytes(config: GptConfig, stage: int, stages: int, precision: str) -> int:
    """Return the bytes for training a stage with one microbatch in flight."""
    return training_memory(config, stage, stages, precision).total_bytes


def host_bytes(config: GptConfig, stage: int, stages: int, precision: str) -> int:
    """Return the bytes of host memory for building a stage for a GPU: its weights, and the largest of them in fp32."""
    weights = config.parameters(stage, stages) * bytes_per_element(precision)
    return round(_OF_ALL * (weights + 2 * _FP32_BYTES * config.largest_matrix_weights(stage, stages)))


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
    return round(_OF_ALL * size**2 * (_PRODUCT_MATRICES * bytes_per_element(precision) + 2 * _FP32_BYTES))
