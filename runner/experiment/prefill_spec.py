"""Define the section ``prefill`` of the experiment file."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, PlainSerializer, PlainValidator, model_validator

from ground.nearest_name import did_you_mean
from ground.shown_text import shown
from ground.strict_model import StrictModel
from ground.units import DurationNs, SizeBytes, format_size
from runner.experiment.quantities import NameOrPath, Truth, whole_number
from workloads.inference.inference_model import INFERENCE_MODELS
from workloads.prefill.request_source import SourceKind
from workloads.prefill.sources.arrivals import LEAST_CV, MOST_CV

DRAWN = (SourceKind.POISSON, SourceKind.GAMMA)
DEPTHS = (1, 2, 4, 8)
MAX_TOKENS = 1_000_000
MAX_TOKEN_BYTES = 2**30
"""The largest KV cache or activation of one token. In the largest models it takes megabytes."""
MAX_CHUNKS = 10_000
"""The most chunks in a prompt of median length. Each chunk is planned separately."""
MEASURED = "measured"
MAX_RATE_PER_S = 1e6

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*s\s*")

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

    return PlainValidator(check)


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
    """Log-normal lengths in tokens. Two thirds lie from ``median`` / ``spread`` to ``median`` x ``spread``."""

    median: Annotated[int, whole_number(1, MAX_TOKENS)]
    spread: Annotated[float, _number("spread", 1, 100, "2")] = 1.0


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
    PlainValidator(_tokens),
    PlainSerializer(lambda tokens: tokens.model_dump(mode="json") if isinstance(tokens, TokensSpec) else tokens),
]


def _token_bytes(size_bytes: int) -> int:
    if not 1 <= size_bytes <= MAX_TOKEN_BYTES:
        raise ValueError(f"{format_size(size_bytes)} is not from 1B to {format_size(MAX_TOKEN_BYTES)} a token")
    return size_bytes


TokenBytes = Annotated[SizeBytes, AfterValidator(_token_bytes)]


class PrefillSpec(StrictModel):
    """Prefill as a service in the bubbles of training.

    ``trace`` (default poisson) is the source of requests: ``poisson``, ``gamma`` with ``variation`` (the coefficient
    of variation of the gaps, default 1), or the path of a trace file, relative to the experiment file. ``rate`` is the
    mean rate of arrivals; without it, a trace file keeps its own rate. ``prompt`` (default 1024 tokens) and ``output``
    (default 128) are the lengths of drawn requests; a trace file has its own. With ``skip_bad_lines`` (default false)
    unusable lines of the file are skipped and counted.

    Each request to ``model`` (default llama-8b) passes in chunks of ``chunk`` tokens (default 512) through ``depth``
    GPUs of one datacenter (default 2). The GPUs take the times of ``profile`` (default a100). The KV cache must reach
    a decode host within ``slo`` (default 10s). A GPU is returned to training ``guard`` (default 500us) before training
    needs it, in addition to the observed jitter. The first ``warmup`` iterations (default 6) are only observed.

    A GPU has ``memory`` (default 80GiB), of which training takes ``training_memory`` (default 30GiB). ``kv`` and
    ``activation`` replace the bytes that one token takes on the network, for all layers. They are meant for networks
    that are scaled down.

    Where torch computes, prefill is computed too and takes its own times. ``profile`` is then used for planning only.
    It is a name, or ``measured``: measured on the testbed before each trial.
    """

    trace: NameOrPath = SourceKind.POISSON.value
    rate: Annotated[float, PlainValidator(_rate_per_s), PlainSerializer(_written_rate)] | None = None
    variation: Annotated[float, _number("coefficient of variation", LEAST_CV, MOST_CV, "2")] | None = None
    prompt: Tokens | None = None
    output: Tokens | None = None
    model: Annotated[str, PlainValidator(_model_name)] = "llama-8b"
    profile: NameOrPath = "a100"
    depth: Annotated[int, PlainValidator(_depth)] = 2
    chunk: Annotated[int, whole_number(1, MAX_TOKENS)] = 512
    slo: DurationNs = 10 * 10**9
    guard: DurationNs = 500_000
    warmup: Annotated[int, whole_number(0, 10_000)] = 6
    memory: SizeBytes = 80 * 2**30
    training_memory: SizeBytes = 30 * 2**30
    kv: TokenBytes | None = None
    activation: TokenBytes | None = None
    skip_bad_lines: Truth = False

    @property
    def drawn(self) -> bool:
        """Whether arrivals are drawn from the seed and not read from a file."""
        return self.trace in DRAWN

    @model_validator(mode="after")
    def _fields_belong_together(self) -> "PrefillSpec":
        if self.drawn and self.rate is None:
            raise ValueError(f"rate: {self.trace} arrivals need one, write it like 4/s")
        if self.drawn and self.skip_bad_lines:
            raise ValueError("skip_bad_lines: only a file has lines: leave it out, or give the path of a trace")
        for name in ("prompt", "output"):
            if not self.drawn and getattr(self, name) is not None:
                raise ValueError(f"{name}: the file has lengths of its own: leave {name} out")
        if self.trace != SourceKind.GAMMA and self.variation is not None:
            raise ValueError("variation: only gamma has one: give trace: gamma, or leave it out")
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
