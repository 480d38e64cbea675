"""Derive the times of a model's parts from its measured stages. Needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from workloads.model.gpt_config import GptConfig
from workloads.profiles.compute_profile import MeasuredModel, MeasuredStage, ModelTimes, PartTimes
from workloads.profiles.measured_conditions import measured_time

Position: TypeAlias = Literal["first", "middle", "last"]
POSITIONS: tuple[Position, ...] = ("first", "middle", "last")


@dataclass(frozen=True)
class StageToMeasure:
    """Stage ``stage`` of the three that ``config`` is cut into; all have the same number of layers."""

    position: Position
    config: GptConfig
    stage: int

    @property
    def layers(self) -> int:
        """The number of its layers."""
        return len(self.config.layers_of(self.stage, len(POSITIONS)))

    def measured(self, repeats_ns: Mapping[str, Sequence[int]]) -> MeasuredStage:
        """Return the stage with the figures of all its actions."""
        return MeasuredStage(
            position=self.position,
            layers=self.layers,
            forward_flops=self.config.forward_flops(self.stage, len(POSITIONS)),
            **{action: measured_time(times_ns) for action, times_ns in repeats_ns.items()},
        )


def stages_to_measure(config: GptConfig, layers: int) -> tuple[StageToMeasure, ...]:
    """Return a first, a middle and a last stage of ``layers`` layers each, in a model that is else as ``config``."""
    three = replace(config, layers=layers * len(POSITIONS))
    return tuple(StageToMeasure(position, three, stage) for stage, position in enumerate(POSITIONS))


def model_times(config: GptConfig, stages: Sequence[MeasuredStage]) -> ModelTimes:
    """Return the times of a model's parts, from the medians of its first, middle and last stage.

    The three have as many layers. A layer's time is the middle stage's shared by its layers. The embedding's and the
    head's are what the first and the last stage take beyond the middle one, 0 where they take less. So a model whose
    stages have as many layers gets the measured times back, but for rounding.
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
