"""Parse the arguments of ``wanbed profile`` into a profiling task, and check it before torch is loaded."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from wanbed.ground.errors import MAX_DIGITS, InputError, MissingError, shown
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.ground.strict_model import parse_model
from wanbed.runner.experiment.model_spec import NAMED_MODELS, ModelSpec
from wanbed.workloads.bubbletea.prefill_profile import LEAST_SIZES
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS, InferenceModel
from wanbed.workloads.profiles.model_parts import (
    POSITIONS,
    StageToMeasure,
    host_bytes,
    product_bytes,
    prompt_bytes,
    stage_bytes,
    stages_to_measure,
)

PRODUCT_SIZES = {"cpu": (512, 1024), "cuda": (4096, 8192, 16_384)}
"""Sizes of the square matrices whose products give the ceiling, by kind of device."""

DEFAULT_PROMPTS = {"cpu": (16, 32, 64, 128, 256, 512), "cuda": (128, 256, 512, 1024, 2048, 4096, 8192)}

DEFAULT_CHUNK = {"cpu": 64, "cuda": 512}
"""Tokens of the chunks that are measured after prior tokens; on a GPU as many as an experiment's prefill has."""

DEFAULT_PRECISION = {"cpu": "fp32", "cuda": "bf16"}

_STAGES = 6
"""A measured stage has as many layers as the model has in each of this many stages."""

_PRECISIONS = {2: "bf16", 4: "fp32"}


@dataclass(frozen=True)
class Need:
    """The memory of one measurement.

    ``device_bytes`` is taken on the device, ``host_bytes`` in the CPU's memory while weights are made for a GPU.
    """

    what: str
    device_bytes: int
    host_bytes: int


@dataclass(frozen=True)
class TrainedModel:
    """A model for training, the name that the user gave it, and its stages to measure."""

    name: str
    config: GptConfig
    stages: tuple[StageToMeasure, ...]


@dataclass(frozen=True)
class StagesTask:
    """A task to measure the stages of one or more models in one precision."""

    models: tuple[TrainedModel, ...]
    precision: str
    product_sizes: tuple[int, ...]

    def needs(self) -> list[Need]:
        """Return the memory of each stage, and of the largest matrix product."""
        return [
            *(
                Need(
                    stage_name(model.name, stage),
                    stage_bytes(stage.config, stage.stage, len(POSITIONS), self.precision),
                    host_bytes(stage.config, stage.stage, len(POSITIONS), self.precision),
                )
                for model in self.models
                for stage in model.stages
            ),
            _product_need(self.product_sizes, self.precision),
        ]


@dataclass(frozen=True)
class PromptsTask:
    """A task to measure prompts of some lengths, and chunks of them, through ``layers`` of an inference model.

    These are all its layers, or some of them without the first. A chunk has ``chunk_tokens``. One is measured after
    each of the lengths after which it is still a part of the longest prompt.
    """

    model: InferenceModel
    layers: range
    prompts: tuple[int, ...]
    chunk_tokens: int
    product_sizes: tuple[int, ...]

    @property
    def chunks(self) -> tuple[tuple[int, int], ...]:
        """The tokens and the prior tokens of every chunk."""
        longest = max(self.prompts)
        return tuple((self.chunk_tokens, prior) for prior in self.prompts if prior + self.chunk_tokens <= longest)

    @property
    def precision(self) -> str:
        """The precision that has the model's bytes per element."""
        return _PRECISIONS[self.model.bytes_per_element]

    def needs(self) -> list[Need]:
        """Return the memory of the longest prompt, and of the largest matrix product."""
        longest = max(self.prompts)
        needed = prompt_bytes(self.model, len(self.layers), longest)
        return [
            Need(f"{self.model.name}, a prompt of {longest} tokens", needed, 0),
            _product_need(self.product_sizes, self.precision),
        ]


def profile_task(
    models: Sequence[str],
    device: str,
    *,
    precision: str | None = None,
    layers: int | None = None,
    prompts: Sequence[int] | None = None,
    chunk: int | None = None,
) -> StagesTask | PromptsTask:
    """Return the task to measure on a ``device`` of that kind (cpu or cuda).

    ``models`` are names of models for training, or dimensions such as "hidden=512,context=256,heads=8,vocabulary=1000",
    or the name of a single inference model. ``layers`` is the number of layers of a stage, or of an inference model's
    measured layers, ``chunk`` the number of tokens of a prompt's chunks. Raise InputError, one line with the argument
    and its remedy.
    """
    inferred = [name for name in models if name in INFERENCE_MODELS]
    if inferred and len(models) > 1:
        raise InputError(f"MODEL: {inferred[0]} makes a prefill profile, which is a file of its own: give it alone")
    sizes = PRODUCT_SIZES[device]
    if inferred:
        model = INFERENCE_MODELS[inferred[0]]
        own = _PRECISIONS[model.bytes_per_element]
        check_exclusions(Exclusion("--precision", f"{model.name} is in {own}", when=precision not in {None, own}))
        lengths = _lengths(prompts or DEFAULT_PROMPTS[device])
        return PromptsTask(model, _layers(model, layers), lengths, _chunk(chunk, device, lengths), sizes)
    for option, given in (("--prompts", prompts), ("--chunk", chunk)):
        if given is not None:
            raise InputError(f"{option}: only a model for inference prefills: give {' or '.join(INFERENCE_MODELS)}")
    check_exclusions(Exclusion("--precision", "torch trains in bf16 or fp32", when=precision == "fp16", leave=""))
    trained = tuple(_trained(name, layers) for name in models)
    seen = [(each.config.hidden, each.config.context, each.config.heads, each.config.vocabulary) for each in trained]
    if len(set(seen)) < len(seen):
        raise InputError("MODEL: two of them differ in nothing but layers: one profile holds for both, give one")
    return StagesTask(trained, precision or DEFAULT_PRECISION[device], sizes)


def check_fits(task: StagesTask | PromptsTask, device: str, name: str, free_bytes: int, host_free_bytes: int) -> None:
    """Raise MissingError, one line, if a measurement takes more memory than ``device`` or the CPU has free."""
    for need in task.needs():
        if need.device_bytes > free_bytes:
            raise MissingError(
                f"memory: {need.what}: about {_gib(need.device_bytes)}, and {name} has {_gib(free_bytes)} free: give "
                "fewer --layers, free some, or take a larger device"
            )
        if device != "cpu" and need.host_bytes > host_free_bytes:
            raise MissingError(
                f"memory: {need.what}: its weights are made in the CPU's memory, about {_gib(need.host_bytes)}, of "
                f"which {_gib(host_free_bytes)} are free: give fewer --layers, or free some"
            )


def stage_name(model: str, stage: StageToMeasure) -> str:
    """Return the name of a stage as messages show it."""
    return f"{model}, {stage.position} stage of {stage.layers} layer{'s' if stage.layers > 1 else ''}"


def _layers(model: InferenceModel, layers: int | None) -> range:
    if layers is None or layers == model.layers:
        return range(model.layers)
    if not 1 <= layers < model.layers:
        raise InputError(f"--layers: {model.name} has 1 to {model.layers}, not {layers}")
    # Skip the first layer, which has the embedding, and the last one, which has the head, if enough others are left.
    # All other layers are alike.
    return range(1, 1 + layers)


def _lengths(prompts: Sequence[int]) -> tuple[int, ...]:
    lengths = tuple(sorted(set(prompts)))
    if len(lengths) < LEAST_SIZES or lengths[0] < 1:
        raise InputError(f"--prompts: give {LEAST_SIZES} lengths or more, each 1 or above, like 128,512,2048")
    return lengths


def _chunk(chunk: int | None, device: str, lengths: tuple[int, ...]) -> int:
    most = lengths[-1] - lengths[0]
    if chunk is None:
        return min(DEFAULT_CHUNK[device], most)
    if not 1 <= chunk <= most:
        raise InputError(
            f"--chunk: a chunk of {chunk} tokens after the shortest prompt is no part of the longest: give 1 to {most}"
        )
    return chunk


def _trained(name: str, layers: int | None) -> TrainedModel:
    spec = NAMED_MODELS.get(name)
    if spec is None:
        spec = parse_model(ModelSpec, _numbers(name), f"MODEL {name}")
    try:
        config = GptConfig(spec.layers or _STAGES, spec.hidden, spec.context, spec.heads or 0, spec.vocabulary or 0)
    except ValueError as fault:
        raise InputError(f"MODEL {name}: {fault}") from None
    if layers is not None and layers < 1:
        raise InputError(f"--layers: {layers} is below 1")
    return TrainedModel(name, config, stages_to_measure(config, layers or max(1, config.layers // _STAGES)))


def _numbers(text: str) -> dict[str, int]:
    fields = [part.partition("=") for part in text.split(",")]
    if not all(equals and re.fullmatch(rf"\s*[0-9]{{1,{MAX_DIGITS}}}\s*", value) for _, equals, value in fields):
        known = ", ".join([*NAMED_MODELS, *INFERENCE_MODELS])
        raise InputError(
            f"MODEL: {shown(text)} is no model: known are {known}, or write it in numbers, like "
            "hidden=512,context=256,heads=8,vocabulary=1000"
        )
    return {field.strip(): int(value) for field, _, value in fields}


def _product_need(sizes: tuple[int, ...], precision: str) -> Need:
    taken = product_bytes(max(sizes), precision)
    return Need(f"a product of {max(sizes)} x {max(sizes)} matrices", taken, taken)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
