"""Define the field ``model`` of the experiment file."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, WithJsonSchema, model_serializer

from ground.shown_text import shown
from ground.strict_model import StrictModel
from runner.experiment.quantities import whole_number
from workloads.model.gpt_config import (
    MAX_CONTEXT_TOKENS,
    MAX_HEADS,
    MAX_HIDDEN,
    MAX_LAYERS,
    MAX_VOCABULARY_TOKENS,
    GptConfig,
)


class ModelSpec(StrictModel):
    """The dimensions of the model, or the name of a known one in place of the section.

    With compute times given in the file, ``hidden`` and ``context`` are enough. A compute profile, torch and the
    default ``gradient`` size need all dimensions.
    """

    hidden: Annotated[int, whole_number(1, MAX_HIDDEN)] = Field(
        description="Hidden size, a multiple of `heads`.", examples=[4096]
    )
    context: Annotated[int, whole_number(1, MAX_CONTEXT_TOKENS)] = Field(
        description="Number of tokens in a sequence.", examples=[4096]
    )
    layers: Annotated[int, whole_number(1, MAX_LAYERS)] | None = Field(
        default=None,
        description="Number of layers, at least that of the stages.",
        examples=[12],
    )
    heads: Annotated[int, whole_number(1, MAX_HEADS)] | None = Field(
        default=None, description="Number of attention heads.", examples=[32]
    )
    vocabulary: Annotated[int, whole_number(1, MAX_VOCABULARY_TOKENS)] | None = Field(
        default=None, description="Number of different tokens.", examples=[50304]
    )

    @property
    def config(self) -> GptConfig | None:
        """The model to build, None if a dimension is missing. Raise ValueError if the dimensions make no model."""
        if self.layers is None or self.heads is None or self.vocabulary is None:
            return None
        return GptConfig(self.layers, self.hidden, self.context, self.heads, self.vocabulary)

    @model_serializer(mode="wrap")
    def _by_name(self, write: SerializerFunctionWrapHandler) -> Any:
        return next((name for name, model in NAMED_MODELS.items() if model == self), None) or write(self)


NAMED_MODELS: Mapping[str, ModelSpec] = {
    "gpt-a": ModelSpec(layers=12, hidden=4096, context=4096, heads=32, vocabulary=50_304),
    "gpt-b": ModelSpec(layers=12, hidden=8192, context=6144, heads=64, vocabulary=50_304),
    "gpt-tiny": ModelSpec(layers=4, hidden=128, context=128, heads=4, vocabulary=256),
}

DEFAULT_MODEL = "gpt-a"


def _model_by_name(written: object) -> object:
    if isinstance(written, str) and written in NAMED_MODELS:
        return NAMED_MODELS[written]
    if isinstance(written, Mapping | ModelSpec):
        return written
    raise ValueError(
        f"{shown(written)} is no model: known are {', '.join(NAMED_MODELS)}, or give its hidden and context"
    )


WrittenModel = Annotated[
    ModelSpec,
    BeforeValidator(
        _model_by_name,
        json_schema_input_type=Annotated[str, WithJsonSchema({"enum": list(NAMED_MODELS)})] | ModelSpec,
    ),
]
"""A model as the file gives it: its dimensions, or one of the names of ``NAMED_MODELS``."""
