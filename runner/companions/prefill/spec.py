"""Define the section ``prefill`` of the experiment file."""

import re
from collections.abc import Iterable, Mapping
from operator import not_
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from wanbed.ground.errors import did_you_mean, shown
from wanbed.ground.exclusions import Exclusion
from wanbed.ground.strict_model import StrictModel
from wanbed.ground.units import DurationNs, SizeBytes, format_size
from wanbed.runner.experiment.quantities import NameOrPath, PrintableName, Truth, whole_number
from wanbed.workloads.bubbletea.request_source import LEAST_CV, MOST_CV, SourceKind
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS

DRAWN = (SourceKind.POISSON, SourceKind.GAMMA)
DEPTHS = (1, 2, 4, 8)
MAX_TOKENS = 1_000_000
MAX_TOKEN_BYTES = 2**30
"""The largest KV cache or activation of one token. In the largest models it takes megabytes."""
MAX_CHUNKS = 10_000
"""The most chunks in a prompt of median length. Each chunk is planned separately."""
MEASURED = "measured"
MAX_RATE_PER_S = 1e6

_RATE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*/\s*s\s*")
_RATE_SCHEMA = {"title": "rate of arrivals", "type": "string", "pattern": f"^{_RATE.pattern}$"}

Policy = Literal["planned", "greedy", "none"]


def _rate_per_s(written: object) -> float:
    match = _RATE.fullmatch(written) if isinstance(written, str) else None
    if match is None or not 0 < float(match[1]) <= MAX_RATE_PER_S:
        raise ValueError(f"{shown(written)} is no rate of arrivals: write it like 4/s or 0.5/s")
    return float(match[1])


def _written_rate(rate_per_s: float) -> str:
    text = f"{rate_per_s:.12f}".rstrip("0").rstrip(".")
    return f"{text}/s"


def _number(name: str, least: float, most: float, example: str) -> PlainValidator:
    def check(written: object) -> float:
        if isinstance(written, int | float) and not isinstance(written, bool) and least <= written <= most:
            return float(written)
        raise ValueError(f"{shown(written)} is no {name}: give a number from {least:g} to {most:g}, like {example}")

    return PlainValidator(check, json_schema_input_type=Annotated[float, Field(ge=least, le=most)])


def _model_name(written: object) -> str:
    if isinstance(written, str) and written in INFERENCE_MODELS:
        return written
    known = f"known: {', '.join(INFERENCE_MODELS)}"
    remedy = did_you_mean(written, INFERENCE_MODELS, known) if isinstance(written, str) else known
    raise ValueError(f"there is no inference model {shown(written)}, {remedy}")


def _depth(written: object) -> int:
    if type(written) is int and written in DEPTHS:
        return written
    raise ValueError(
        f"{shown(written)} is no depth: a request goes through {', '.join(map(str, DEPTHS[:-1]))} or 8 GPUs"
    )


class TokensSpec(StrictModel):
    """Log-normal lengths of requests, in place of one length for all."""

    median: Annotated[int, whole_number(1, MAX_TOKENS)] = Field(description="Median length in tokens.", examples=[1024])
    spread: Annotated[float, _number("spread", 1, 100, "2")] = Field(
        default=1.0,
        description="Factor of the spread: two thirds of the lengths lie from median / spread to median x spread.",
        examples=[2],
    )


def _tokens(written: object) -> int | TokensSpec:
    if isinstance(written, TokensSpec):
        return written
    if isinstance(written, Mapping):
        return TokensSpec.model_validate(written)
    if type(written) is int and 1 <= written <= MAX_TOKENS:
        return written
    raise ValueError(f"{shown(written)} is no length in tokens: give a whole number, or {{median: 1024, spread: 2}}")


Tokens = Annotated[
    int | TokensSpec,
    PlainValidator(_tokens, json_schema_input_type=Annotated[int, Field(ge=1, le=MAX_TOKENS)] | TokensSpec),
    PlainSerializer(lambda tokens: tokens.model_dump(mode="json") if isinstance(tokens, TokensSpec) else tokens),
]


def _token_bytes(size_bytes: int) -> int:
    if not 1 <= size_bytes <= MAX_TOKEN_BYTES:
        raise ValueError(f"{format_size(size_bytes)} is not from 1B to {format_size(MAX_TOKEN_BYTES)} a token")
    return size_bytes


TokenBytes = Annotated[SizeBytes, AfterValidator(_token_bytes)]


class TraceColumnsSpec(StrictModel):
    """The columns of a request trace that is in none of the published formats: CSV with a header, or JSONL."""

    arrival: PrintableName = Field(
        description="The column, or JSON field, of the arrival. Arrivals count from any origin, and are not negative.",
        examples=["sent_at"],
    )
    prompt: PrintableName = Field(description="The column of the prompt's length in tokens.", examples=["input_tokens"])
    output: PrintableName = Field(
        description="The column of the output's length in tokens.", examples=["output_tokens"]
    )
    unit: Literal["s", "ms", "us", "ns", "utc"] = Field(
        description="The unit of the arrivals: `s`, `ms`, `us` or `ns` for numbers, which may have a fraction, and "
        "`utc` for dates and times like 2023-11-16 18:17:03.97996.",
        examples=["s"],
    )


class PrefillSpec(StrictModel):
    """Prefill as a service in the bubbles of training.

    Where torch computes, prefill is computed too and takes its own times.
    """

    trace: NameOrPath = Field(
        default=SourceKind.POISSON.value,
        description="Source of requests: `poisson`, `gamma`, or the path of a request trace, relative to the "
        "experiment file.",
        examples=["gamma", "./AzureLLMInferenceTrace_code.csv"],
    )
    rate: (
        Annotated[float, PlainValidator(_rate_per_s), PlainSerializer(_written_rate), WithJsonSchema(_RATE_SCHEMA)]
        | None
    ) = Field(
        default=None,
        description="Mean rate of arrivals, in requests per second; `poisson` and `gamma` need it. Default: a trace "
        "file's own rate.",
        examples=["30/s", "0.5/s"],
    )
    variation: Annotated[float, _number("coefficient of variation", LEAST_CV, MOST_CV, "2")] | None = Field(
        default=None,
        description="Coefficient of variation of the gaps of `gamma`: above 1 arrivals are burstier than a Poisson "
        "process, below 1 steadier. Default: 1.",
        examples=[2],
    )
    prompt: Tokens | None = Field(
        default=None,
        description="Tokens of a prompt, one length or a distribution. A trace file has its own. Default: 1024.",
        examples=[512, {"median": 1024, "spread": 2}],
    )
    output: Tokens | None = Field(
        default=None,
        description="Tokens of an output, one length or a distribution. A trace file has its own. Default: 128.",
        examples=[16],
    )
    model: Annotated[str, PlainValidator(_model_name), WithJsonSchema({"enum": list(INFERENCE_MODELS)})] = Field(
        default="llama-8b", description="Model that answers requests.", examples=["llama-8b"]
    )
    profile: NameOrPath = Field(
        default="a100",
        description="Prefill profile that gives the times: a known name, or the path of its JSON file, relative to the "
        "experiment file. Where torch computes it only serves planning, and may be `measured`: measured on the testbed "
        "before each trial.",
        examples=["a100", "measured"],
    )
    depth: Annotated[int, PlainValidator(_depth), WithJsonSchema({"enum": list(DEPTHS)})] = Field(
        default=2, description="Number of GPUs of one datacenter that a request goes through.", examples=[4]
    )
    chunk: Annotated[int, whole_number(1, MAX_TOKENS)] = Field(
        default=512, description="Tokens of a prompt that are computed at once.", examples=[256]
    )
    slo: DurationNs = Field(
        default=10 * 10**9,
        description="Time within which a request's KV cache must reach a decode host (TTFT), above 0.",
        examples=["2s"],
    )
    guard: DurationNs = Field(
        default=500_000,
        description="How long before training needs a GPU it is returned, in addition to the observed jitter.",
        examples=["3ms"],
    )
    warmup: Annotated[int, whole_number(0, 10_000)] = Field(
        default=6, description="Number of first iterations that are only observed.", examples=[6]
    )
    memory: SizeBytes = Field(default=80 * 2**30, description="Memory of a GPU.", examples=["40GiB"])
    training_memory: SizeBytes = Field(
        default=30 * 2**30, description="The part of a GPU's memory that training takes.", examples=["20GiB"]
    )
    kv: TokenBytes | None = Field(
        default=None,
        description="Bytes of the KV cache of one token on the network, for all layers, from 1B to 1GiB; for networks "
        "that are scaled down. Default: the model's.",
        examples=["2KiB"],
    )
    activation: TokenBytes | None = Field(
        default=None,
        description="Bytes of the activation of one token on the network, from 1B to 1GiB; for networks that are "
        "scaled down. Default: the model's.",
        examples=["128B"],
    )
    skip_bad_lines: Truth = Field(
        default=False,
        description="Whether unusable lines of a trace file are skipped and counted, instead of refused.",
        examples=[True],
    )
    columns: TraceColumnsSpec | None = Field(
        default=None,
        exclude_if=not_,
        description="The columns of a trace file with names of its own. Default: those of the published formats.",
        examples=[{"arrival": "sent_at", "prompt": "input_tokens", "output": "output_tokens", "unit": "s"}],
    )

    @property
    def drawn(self) -> bool:
        """Tell whether arrivals are drawn from the seed and not read from a file."""
        return self.trace in DRAWN

    def exclusions(self) -> Iterable[Exclusion]:
        """Declare what a file of requests has that drawn ones have not, and the other way round."""
        a_file, gamma = "give the path of a trace", self.trace == SourceKind.GAMMA
        return (
            Exclusion("skip_bad_lines", "only a file has lines", a_file, when=self.drawn),
            Exclusion("columns", "only a file has columns", a_file, when=self.drawn),
            Exclusion(("prompt", "output"), "the file has lengths of its own", when=not self.drawn),
            Exclusion("variation", "only gamma has one", "give trace: gamma", when=not gamma),
        )

    @model_validator(mode="after")
    def _fields_belong_together(self) -> "PrefillSpec":
        if self.drawn and self.rate is None:
            raise ValueError(f"rate: {self.trace} arrivals need one, write it like 4/s")
        if self.slo == 0:
            raise ValueError("slo: 0 is too little: give more, or leave it out")
        median = self.prompt.median if isinstance(self.prompt, TokensSpec) else self.prompt
        if median is not None and median > MAX_CHUNKS * self.chunk:
            raise ValueError(
                f"chunk: a prompt of {median} tokens is more than {MAX_CHUNKS} chunks of {self.chunk}: give larger ones"
            )
        if self.training_memory > self.memory:
            raise ValueError("training_memory: it is more than the memory that a GPU has: give less, or more memory")
        return self
