"""Compute profiles, and the times of a model's stages that follow from them.

A profile is measured, layer by layer on a device, or estimated, from the device's data sheet. Either holds for one
microbatch of one sequence, in the profile's precision.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from ground.strict_model import InputError, StrictModel
from workloads.model.gpt_config import (
    MAX_CONTEXT_TOKENS,
    MAX_HEADS,
    MAX_HIDDEN,
    MAX_LAYERS,
    MAX_VOCABULARY_TOKENS,
    GptConfig,
    bytes_per_element,
)
from workloads.profiles.measured_conditions import MeasuredConditions, MeasuredTime, TimeNs


@dataclass(frozen=True)
class MeasuredStageCosts:
    """The times of one stage for each action of one microbatch, and for the optimizer's step."""

    forward_ns: int
    backward_ns: int
    recompute_ns: int
    backward_input_ns: int
    backward_weight_ns: int
    optimizer_ns: int


class ProfileSource(StrictModel):
    """The source of figures: which figures, and their origin."""

    figures: str = Field(min_length=1)
    origin: str = Field(min_length=1)


def _known_precision(precision: str) -> str:
    bytes_per_element(precision)
    return precision


ProfilePrecision = Annotated[str, AfterValidator(_known_precision)]
"""The precision that a profile holds for, one that models have."""

PerSecond = Annotated[float, Field(ge=1e6, le=1e24)]
"""Operations or bytes: from a pocket calculator's to a million of the fastest machines there are."""
Efficiency = Annotated[float, Field(ge=1e-6, le=1)]


class ComputeProfile(StrictModel):
    """The fields that every profile has. A subclass adds the figures and the times that follow."""

    title: str = Field(min_length=1)
    basis: Literal["measured", "estimated"]
    device: str = Field(min_length=1)
    precision: ProfilePrecision
    source: tuple[ProfileSource, ...] = Field(min_length=1)

    @abstractmethod
    def stage_times(self, config: GptConfig, stages: int) -> tuple[MeasuredStageCosts, ...]:
        """Return the times of each stage. Raises InputError, one line, if the profile does not hold for the model.

        Raises ValueError if the model does not have so many stages.
        """

    def activation_bytes(self, config: GptConfig) -> int:
        """Return the bytes of one microbatch's activation at a boundary of stages, or of its gradient."""
        return config.activation_bytes(self.precision)

    def gradient_bytes(self, config: GptConfig, stages: int) -> tuple[int, ...]:
        """Return the bytes of the gradients of all weights of each stage."""
        return tuple(config.gradient_bytes(stage, stages, self.precision) for stage in range(stages))


class EstimatedProfile(ComputeProfile):
    """Times from operations and bytes: an estimate, whose ``efficiency`` is an assumption.

    forward = operations / (peak x efficiency), with the operations of ``GptConfig.forward_flops``; recompute = forward;
    backward = 2 forward, half of it for the input and half for the weights, as each is a product of matrices of the
    forward's size; optimizer = parameters x bytes moved for each / memory bandwidth. The embedding's forward is
    counted as nothing, and so are norms and the reading of weights: efficiency stands for them.
    """

    basis: Literal["estimated"]
    peak_flops_per_s: PerSecond
    efficiency: Efficiency
    memory_bandwidth_bytes_per_s: PerSecond
    optimizer_bytes_per_parameter: float = Field(ge=0, le=1e6)

    def stage_times(self, config: GptConfig, stages: int) -> tuple[MeasuredStageCosts, ...]:
        """Return the times of each stage. Raises ValueError if the model does not have so many stages."""
        return tuple(self._times_of(config, stage, stages) for stage in range(stages))

    def _times_of(self, config: GptConfig, stage: int, stages: int) -> MeasuredStageCosts:
        forward_ns = round(config.forward_flops(stage, stages) / (self.peak_flops_per_s * self.efficiency) * 1e9)
        moved_bytes = config.parameters(stage, stages) * self.optimizer_bytes_per_parameter
        return MeasuredStageCosts(
            forward_ns=forward_ns,
            backward_ns=2 * forward_ns,
            recompute_ns=forward_ns,
            backward_input_ns=forward_ns,
            backward_weight_ns=forward_ns,
            optimizer_ns=round(moved_bytes / self.memory_bandwidth_bytes_per_s * 1e9),
        )


class PartTimes(StrictModel):
    """The measured times of one part of a model: of one layer, of the embedding, or of the head with its norm."""

    forward_ns: TimeNs
    backward_ns: TimeNs
    recompute_ns: TimeNs
    backward_input_ns: TimeNs
    backward_weight_ns: TimeNs
    optimizer_ns: TimeNs


class MeasuredModel(StrictModel):
    """The model whose parts were measured; any number of such layers may be put together."""

    hidden: int = Field(ge=1, le=MAX_HIDDEN)
    context: int = Field(ge=1, le=MAX_CONTEXT_TOKENS)
    heads: int = Field(ge=1, le=MAX_HEADS)
    vocabulary: int = Field(ge=1, le=MAX_VOCABULARY_TOKENS)


class MeasuredStage(StrictModel):
    """One stage as it was measured: ``layers`` of them, with the embedding if it is the first, the head if the last.

    ``forward_flops`` are the operations of its forward (see ``GptConfig.forward_flops``).
    """

    position: Literal["first", "middle", "last"]
    layers: int = Field(ge=1, le=MAX_LAYERS)
    forward_flops: int = Field(ge=1, le=10**30)
    forward: MeasuredTime
    backward: MeasuredTime
    recompute: MeasuredTime
    backward_input: MeasuredTime
    backward_weight: MeasuredTime
    optimizer: MeasuredTime

    def times(self) -> Iterator[tuple[str, MeasuredTime]]:
        """Yield every action's name and figure."""
        for name in ("forward", "recompute", "backward", "backward_input", "backward_weight", "optimizer"):
            yield name, getattr(self, name)

    @property
    def flops_per_s(self) -> float:
        """Operations per second over forward, recompute and backward, which take four times a forward's operations."""
        spent_ns = self.forward.median_ns + self.recompute.median_ns + self.backward.median_ns
        return 4 * self.forward_flops / max(1, spent_ns) * 1e9


class ModelTimes(StrictModel):
    """The times of the parts of one model. ``stages`` holds the measurements behind them, where those are kept."""

    model: MeasuredModel
    embedding: PartTimes
    layer: PartTimes
    head: PartTimes
    stages: tuple[MeasuredStage, ...] = ()

    def stage_times(self, layers: int, *, first: bool, last: bool) -> MeasuredStageCosts:
        """Return the times of a stage of so many layers: the sum over its parts."""
        parts = ((self.layer, layers), (self.embedding, int(first)), (self.head, int(last)))
        return MeasuredStageCosts(
            **{name: sum(getattr(part, name) * count for part, count in parts) for name in PartTimes.model_fields}
        )


class MeasuredProfile(ComputeProfile):
    """Times of the parts of one or more ``models``, as measured on the device. A stage's are the sum over its parts.

    A file of one model may hold the fields of ``ModelTimes`` themselves in place of ``models``.
    """

    basis: Literal["measured"]
    models: tuple[ModelTimes, ...] = Field(min_length=1)
    conditions: MeasuredConditions | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_model_by_itself(cls, written: object) -> object:
        if not isinstance(written, Mapping) or "models" in written:
            return written
        rest = {name: value for name, value in written.items() if name not in ModelTimes.model_fields}
        return {**rest, "models": [{name: written[name] for name in ModelTimes.model_fields if name in written}]}

    def stage_times(self, config: GptConfig, stages: int) -> tuple[MeasuredStageCosts, ...]:
        """Return the times of each stage. Raises InputError for a model that was not measured, in all but its layers.

        Raises ValueError if the model does not have so many stages.
        """
        times = self._times_of(config)
        return tuple(
            times.stage_times(len(config.layers_of(stage, stages)), first=stage == 0, last=stage == stages - 1)
            for stage in range(stages)
        )

    def _times_of(self, config: GptConfig) -> ModelTimes:
        for times in self.models:
            if all(getattr(config, name) == measured for name, measured in times.model):
                return times
        for name in MeasuredModel.model_fields:
            measured = [getattr(times.model, name) for times in self.models]
            if getattr(config, name) not in measured:
                raise InputError(
                    f"profile {self.title!r}: measured with {name} {' and '.join(map(str, dict.fromkeys(measured)))}, "
                    f"not {getattr(config, name)}: measure this model, or take an estimated profile"
                )
        raise InputError(
            f"profile {self.title!r}: measured with none of its models in these dimensions together: measure this "
            "model, or take an estimated profile"
        )
