"""Define the section ``compute`` of the experiment file, with ``compute.jitter`` and ``compute.slower``."""

from collections.abc import Iterable, Mapping
from operator import not_
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, JsonValue, PlainValidator, field_validator, model_validator

from wanbed.ground.errors import shown
from wanbed.ground.exclusions import Exclusion
from wanbed.ground.strict_model import StrictModel
from wanbed.ground.units import Fraction, format_fraction
from wanbed.results.records.span_log import MAX_ITERATIONS
from wanbed.runner.experiment.quantities import (
    MAX_PIPELINES,
    BoundarySizesBytes,
    NameOrPath,
    PrintableName,
    StageDurationsNs,
    StageTruths,
    Truth,
    whole_number,
)
from wanbed.runner.experiment.training_spec import MAX_STAGES
from wanbed.workloads.compute.backends.backend import ComputeBackend, create_backend, load_backend
from wanbed.workloads.compute.backends.registry import backend_class_path
from wanbed.workloads.compute.varied_durations import MAX_SPREADS, Distribution, Jitter

DEFAULT_KIND = "replay"
WRITTEN_COSTS = ("forward", "backward", "backward_weight", "recompute", "optimizer", "activation", "gradient")
"""The fields that state costs of the stages. Where one is written, they are those of no particular model."""
MIN_FACTOR, MAX_FACTOR = 0.001, 1000.0
_CHOICES = ("datacenter", "host", "pipeline", "stage")


class JitterSpec(StrictModel):
    """Compute times that vary: each action's time is multiplied by a factor of its own, drawn with mean 1.

    A draw depends only on ``seed``, the repeat, pipeline, stage and iteration, the kind of action and its microbatch.
    So simulation and replay draw the same times, and all variants of a sweep point do.
    """

    distribution: Distribution = Field(
        default=Distribution.NORMAL,
        description="Distribution of the factor. `normal` is cut off at zero; `lognormal` and `gamma` have a longer "
        "tail of slow actions; `uniform` has none.",
        examples=["gamma"],
    )
    spread: Fraction = Field(
        description="Standard deviation of the factor: 5% varies a time of 20ms by 1ms. At most 30% for `normal`, 57% "
        "for `uniform`, otherwise 100%. 0% is no jitter.",
        examples=["5%"],
    )

    @model_validator(mode="after")
    def _spread_fits(self) -> "JitterSpec":
        most = MAX_SPREADS[self.distribution]
        if self.spread > most:
            raise ValueError(
                f"spread: {format_fraction(self.spread)} of a {self.distribution} distribution makes times of zero or "
                f"less: give at most {format_fraction(most)}, or distribution: gamma or lognormal"
            )
        return self

    @property
    def jitter(self) -> Jitter | None:
        """The jitter that is drawn, None if the spread is zero."""
        return Jitter(self.distribution, self.spread) if self.spread else None


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


Computation = Literal["forward", "recompute", "backward", "optimizer"]

COMPUTATIONS: tuple[Computation, ...] = get_args(Computation)


def _is_every_computation(actions: object) -> bool:
    return actions == COMPUTATIONS


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
        description="Factor on their compute times, above 0: 2 is half as fast, 0.5 twice as fast.", examples=[1.6]
    )
    actions: tuple[Computation, ...] = Field(
        default=COMPUTATIONS,
        min_length=1,
        exclude_if=_is_every_computation,
        description="The work that the factor is for; that of a backward is for both parts of one that is split. "
        "Default: all.",
        examples=[["forward", "recompute"]],
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


def _known_backend(written: object) -> str:
    name = written if isinstance(written, str) else repr(written)
    load_backend(backend_class_path(name))
    return name


class ComputeSpec(StrictModel):
    """How the stages compute.

    With ``kind: replay`` times come from a compute ``profile``, or are written here. Then each is the time of one
    microbatch at one stage, in one value for all stages or a list with one for each, stage 0 first.
    """

    kind: Annotated[str, BeforeValidator(_known_backend)] = Field(
        default=DEFAULT_KIND,
        description="Compute back end. `replay` occupies the GPU for a known time, `torch` trains the model in torch. "
        "Any other kind is a back end of an installed package.",
        examples=["torch"],
    )
    profile: NameOrPath | None = Field(
        default=None,
        description="Compute profile that gives the times for the model: a known name, or the path of its JSON file, "
        "relative to the experiment file. Where torch computes, planned schedules take their times from it. Default: "
        "cpu for torch, otherwise none.",
        examples=["a100", "./my-gpu.json"],
    )
    trace: NameOrPath | None = Field(
        default=None,
        exclude_if=not_,
        description="Folder of a Chakra execution trace, with a file `NAME.RANK.et` for each rank, relative to the "
        "experiment file. Every variant replays it in each iteration, in place of training by a schedule: rank r on "
        "the r-th GPU of the topology. No other times and sizes are then written. Default: none.",
        examples=["traces/gpt"],
    )
    checkpointing: StageTruths | None = Field(
        default=None,
        description="Whether a stage recomputes its forward before its backward, where times come from a profile or "
        "torch: one answer for all stages, or a list with one for each. Default: true.",
        examples=[False, [True, True, True, False]],
    )
    forward: StageDurationsNs | None = Field(
        default=None,
        description="Time of the forward. Default: 50ms, unless a profile gives it.",
        examples=["20ms", ["20ms", "25ms"]],
    )
    backward: StageDurationsNs | None = Field(
        default=None, description="Time of the backward. Default: twice the forward.", examples=["40ms"]
    )
    backward_weight: StageDurationsNs | None = Field(
        default=None,
        description="The part of the backward that computes the gradients of weights, where a schedule splits it. "
        "Default: half of the backward.",
        examples=["20ms"],
    )
    recompute: StageDurationsNs | None = Field(
        default=None,
        description="Time to recompute the forward before the backward. Default: 0ms, unless a profile gives it.",
        examples=["20ms"],
    )
    optimizer: StageDurationsNs | None = Field(
        default=None,
        description="Time of the optimizer, once an iteration. Default: 0ms, unless a profile gives it.",
        examples=["5ms"],
    )
    activation: BoundarySizesBytes | None = Field(
        default=None,
        description="What one microbatch sends over a stage boundary, forward as the activation and back as its "
        "gradient; 1B at least. In a list, entry i is the boundary between stages i and i + 1. Default: the model's "
        "context x hidden in the precision of training; without a model it has to be written.",
        examples=["32MiB"],
    )
    gradient: BoundarySizesBytes | None = Field(
        default=None,
        description="What a stage's replicas all-reduce after an iteration, in one value or one for each stage; 1B at "
        "least. Default: the stage's parameters in the precision of training; without a model it has to be written, if "
        "there are replicas.",
        examples=["768MiB"],
    )
    slower: tuple[SlowerSpec, ...] = Field(
        default=(),
        exclude_if=not_,
        description="GPUs that take a factor longer than their stage's times: stragglers, or another type of GPU. "
        "Default: none, all replicas of a stage are alike.",
        examples=[[{"datacenter": "west", "factor": 1.6}]],
    )
    jitter: JitterSpec | None = Field(
        default=None,
        exclude_if=not_,
        description="How compute times vary from one action to the next. `repeats` then hold for a simulation too. "
        "Default: not at all.",
        examples=[{"distribution": "gamma", "spread": "5%"}],
    )
    from_run: NameOrPath | None = Field(
        default=None,
        exclude_if=not_,
        alias="from",
        description="Folder of a run whose compute times are taken, relative to the experiment file, in place of those "
        "of the file or the profile: each kind of action at each GPU takes the median of what that run has after its "
        "warm-up. Default: none.",
        examples=["runs/measured-20260102-030405-abcdef12"],
    )
    resample: Truth | None = Field(
        default=None,
        exclude_if=not_,
        description="Whether each action's time is drawn from those of the run `from`, in place of their median. "
        "`repeats` then hold for a simulation too. Default: false.",
        examples=[True],
    )
    device: Literal["auto", "cpu", "cuda"] | None = Field(
        default=None,
        description="Device on which torch computes. `auto` is a GPU where there is one. Default: auto with "
        "`kind: torch`, which alone has a device.",
        examples=["cpu"],
    )
    threads: Annotated[int, whole_number(1, 1024)] | None = Field(
        default=None,
        description="Number of torch's threads for each rank, only with `kind: torch`. Default: 1.",
        examples=[2],
    )
    sharing: Annotated[int, whole_number(1, 1024)] | None = Field(
        default=None,
        description="Number of the experiment's GPUs that share one real GPU, only with `kind: torch`. Default: 1.",
        examples=[2],
    )
    check_iteration: Annotated[int, whole_number(0, MAX_ITERATIONS)] | None = Field(
        default=None,
        description="Iteration of the warm-up, from 0 and not its last, that torch.profiler records as a check on the "
        "ranks' busy times. Those of torch's own schedules are not checked. Default: none.",
        examples=[0],
    )
    deterministic: Truth | None = Field(
        default=None,
        exclude_if=not_,
        description="Whether torch uses only kernels that give the same bits in every run, only with `kind: torch`. On "
        "a GPU they are slower than those with which models are trained in practice: cuDNN's attention is refused, and "
        "FlashAttention's backward sums in a fixed order. Default: false.",
        examples=[True],
    )
    options: dict[str, JsonValue] = Field(
        default_factory=dict,
        exclude_if=not_,
        description="Options of another package's back end, by name, as the back end defines them.",
        examples=[{"warm": True}],
    )

    @field_validator("deterministic", "resample")
    @classmethod
    def _none_for_the_default(cls, written: bool | None) -> bool | None:
        return written or None

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_kind(cls, written: object) -> object:
        if not isinstance(written, Mapping):
            return written
        try:
            backend = load_backend(backend_class_path(str(written.get("kind", DEFAULT_KIND))))
        except ValueError:
            # The validator of the field reports the unknown kind.
            return written
        defaults: dict[str, object] = {}
        if written.get("trace") is not None:
            pass
        elif written.get("profile") is None and backend.planning_profile is None:
            defaults = {"forward": "50ms", "recompute": "0ms", "optimizer": "0ms"}
        else:
            defaults = {"checkpointing": True}
        if backend.on_device:
            defaults |= {"device": "auto", "threads": 1}
        return {**written, **{name: value for name, value in defaults.items() if written.get(name) is None}}

    def exclusions(self) -> Iterable[Exclusion]:
        """Declare what does not go with a trace, a profile, and what the back end makes itself."""
        try:
            backend = self.backend
        except ValueError as refusal:
            raise ValueError(f"options: {refusal}") from None
        if self.trace is not None:
            fields = {field.alias or name for name, field in type(self).model_fields.items()}
            others = tuple(sorted(fields - {"kind", "trace", "options"}))
            unlike = self.kind != DEFAULT_KIND
            return (
                Exclusion("trace", f"only kind: {DEFAULT_KIND} replays a trace", leave="kind", when=unlike),
                Exclusion(others, "the trace has its own times and sizes"),
            )
        times = ("forward", "backward", "backward_weight", "recompute", "optimizer")
        replaced = "the profile gives them" if backend.planning_profile is None else f"{backend.title} measures them"
        profiled, resampled = self.times_profile is not None, bool(self.resample)
        of_torch = ("device", "threads", "sharing", "check_iteration", "deterministic")
        varied = "resample draws times that vary already"
        return (
            Exclusion(times, f"times are not written here, {replaced}", when=profiled),
            Exclusion("checkpointing", "times are written out here", "give a recompute time", when=not profiled),
            Exclusion(("activation", "gradient"), f"{backend.title} sends what the model makes", when=backend.trains),
            Exclusion("sharing", "only GPUs are shared", "give device: cuda", when=self.device == "cpu"),
            Exclusion(of_torch, "only torch computes on a device", "give kind: torch", when=not backend.on_device),
            Exclusion("resample", "it draws from the times of a run", "give from", when=self.from_run is None),
            Exclusion("jitter", varied, leave="jitter or resample", when=resampled),
        )

    @property
    def backend_path(self) -> str:
        """The path of the class that computes, ``package.module:Class``."""
        return backend_class_path(self.kind)

    @property
    def backend(self) -> ComputeBackend:
        """The back end of this kind of compute, constructed with ``options``."""
        return create_backend(self.backend_path, self.options)

    @property
    def times_profile(self) -> str | None:
        """The compute profile that gives the times of the stages, None where the file gives them.

        With a back end that measures its own times, planned schedules use this profile.
        """
        return self.profile or self.backend.planning_profile

    @property
    def varies(self) -> bool:
        """Return whether compute times are drawn, so that repeats differ."""
        return bool(self.resample) or (self.jitter is not None and self.jitter.jitter is not None)
