"""Define the entries of ``compute.slower``: GPUs that take a factor longer than their stage, or are faster."""

from typing import Annotated

from pydantic import Field, PlainValidator, model_validator

from wanbed.ground.shown_text import shown
from wanbed.ground.strict_model import StrictModel
from wanbed.runner.experiment.quantities import MAX_PIPELINES, PrintableName, whole_number
from wanbed.runner.experiment.training_spec import MAX_STAGES

MIN_FACTOR, MAX_FACTOR = 0.001, 1000.0
_CHOICES = ("datacenter", "host", "pipeline", "stage")


def _factor(written: object) -> float:
    if isinstance(written, int | float) and not isinstance(written, bool) and MIN_FACTOR <= written <= MAX_FACTOR:
        return float(written)
    raise ValueError(
        f"{shown(written)} is no factor: give a number from {MIN_FACTOR:g} to {MAX_FACTOR:g}, like 1.6 for times that "
        "are 1.6 times as long"
    )


Factor = Annotated[
    float, PlainValidator(_factor, json_schema_input_type=Annotated[float, Field(ge=MIN_FACTOR, le=MAX_FACTOR)])
]


class SlowerSpec(StrictModel):
    """GPUs whose compute times are longer or shorter than those of their stage: stragglers, or another type of GPU.

    An entry is about the GPUs that match everything it names, at least one of datacenter, host, pipeline and stage.
    Factors of several entries about one GPU multiply.
    """

    datacenter: PrintableName | None = Field(
        default=None, description="The GPUs in this datacenter. Default: any.", examples=["west"]
    )
    host: PrintableName | None = Field(
        default=None, description="The GPUs of this host. Default: any.", examples=["east-1"]
    )
    pipeline: Annotated[int, whole_number(0, MAX_PIPELINES - 1)] | None = Field(
        default=None, description="The GPUs of this pipeline, from 0. Default: any.", examples=[2]
    )
    stage: Annotated[int, whole_number(0, MAX_STAGES - 1)] | None = Field(
        default=None, description="The GPUs of this stage, from 0. Default: any.", examples=[1]
    )
    factor: Factor = Field(
        description="Factor on all their compute times, above 0: 2 is half as fast, 0.5 twice as fast.", examples=[1.6]
    )

    @model_validator(mode="after")
    def _names_gpus(self) -> "SlowerSpec":
        if all(getattr(self, name) is None for name in _CHOICES):
            raise ValueError("name the GPUs that it is about: give datacenter, host, pipeline or stage")
        return self

    @property
    def choice(self) -> str:
        """The parts of the training that the entry is about, for messages: ``host east-1, stage 1``."""
        named = ((name, getattr(self, name)) for name in _CHOICES)
        return ", ".join(f"{name} {value}" for name, value in named if value is not None)
