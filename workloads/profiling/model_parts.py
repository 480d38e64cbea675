"""Choose the stages to measure, and derive the times of a model's parts from them. Needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from wanbed.workloads.model.gpt_config import GptConfig
from wanbed.workloads.profiles.compute_profile import MeasuredModel, MeasuredStage, ModelTimes, PartTimes
from wanbed.workloads.profiles.measured_conditions import measured_time

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
