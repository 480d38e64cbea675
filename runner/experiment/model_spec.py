"""Define the field ``model`` of the experiment file."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, WithJsonSchema, model_serializer

from wanbed.ground.errors import shown
from wanbed.ground.strict_model import StrictModel
from wanbed.runner.experiment.quantities import Truth, whole_number
from wanbed.workloads.gpt.gpt_config import (
    MAX_CONTEXT_TOKENS,
    MAX_HEADS,
    MAX_HIDDEN,
    MAX_LAYERS,
    MAX_VOCABULARY_TOKENS,
    Architecture,
    GptConfig,
)


class ModelSpec(StrictModel):
    """The dimensions of the model, or the name of a known one in place of the section.

    With compute times given in the file, ``hidden`` and ``context`` are enough. A compute profile, torch and the
    default ``gradient`` size need ``layers``, ``heads`` and ``vocabulary`` too.

    A layer has 2 H^2 + 2 H K + 2 H F weights in its matrices and 4 H in its norms, with H = hidden, K = H x kv_heads /
    heads and F = feed_forward. Architecture gpt-2 has 3 H + 2 K + F biases besides; llama has 3 H F in place of 2 H F,
    and 2 H in norms. With V = vocabulary, the embedding of tokens has V H weights, that of positions context x H
    (llama has none), the last norm half as many as a layer's two, and the head V H unless it is tied. So GPT-2 (hidden
    768, 12 layers, 12 heads, vocabulary 50257) has 124,439,808 parameters, and Llama 3 8B (hidden 4096, 32 layers, 32
    heads, kv_heads 8, feed_forward 14336, vocabulary 128256) has 8,030,261,248.
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
    architecture: Literal["gpt", "gpt-2", "llama"] | None = Field(
        default=None,
        description="Which weights there are, as above. `gpt` is the model that torch trains. Default: gpt.",
        examples=["llama"],
    )
    kv_heads: Annotated[int, whole_number(1, MAX_HEADS)] | None = Field(
        default=None,
        description="Number of key and value heads, which the heads share evenly. Default: as many as heads.",
        examples=[8],
    )
    feed_forward: Annotated[int, whole_number(1, MAX_HIDDEN)] | None = Field(
        default=None,
        description="Width inside the feed-forward layer. Default: 4 times hidden.",
        examples=[14336],
    )
    tied_head: Truth | None = Field(
        default=None,
        description="Whether the head is the embedding of tokens, for a model of one stage. Default: true of gpt-2, "
        "otherwise false.",
        examples=[True],
    )

    @property
    def config(self) -> GptConfig | None:
        """The model to build, None if a dimension is missing. Raise ValueError if the dimensions make no model."""
        if self.layers is None or self.heads is None or self.vocabulary is None:
            return None
        return GptConfig(
            self.layers,
            self.hidden,
            self.context,
            self.heads,
            self.vocabulary,
            Architecture(self.architecture or Architecture.GPT),
            self.kv_heads,
            self.feed_forward,
            self.architecture == "gpt-2" if self.tied_head is None else self.tied_head,
        )

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
