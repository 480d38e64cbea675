"""Models of the experiment file as written: the fields that this version runs, and none that it would ignore.

Every field that can have a sensible default has one, stated in its section's docstring. Anything else in the file is
refused. What the fields mean together (does the model fit the topology?) is checked when sweep points are resolved.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from ground.shown_text import shown
from ground.strict_model import StrictModel
from runner.experiment.prefill_spec import Policy, PrefillSpec
from runner.experiment.quantities import (
    AUTO,
    MAX_PIPELINES,
    BoundarySizesBytes,
    CongestionControl,
    Connections,
    Dilation,
    LearningRate,
    NameOrPath,
    PipelinesPerCell,
    PrintableName,
    StageDatacenters,
    StageDurationsNs,
    Truth,
    WindowBytes,
    whole_number,
)
from testbed.network.topology import TopologySpec
from workloads.compute.backends.backend import ComputeBackend, create_backend, load_backend
from workloads.compute.backends.registry import backend_class_path
from workloads.model.gpt_config import (
    MAX_CONTEXT_TOKENS,
    MAX_HEADS,
    MAX_HIDDEN,
    MAX_LAYERS,
    MAX_VOCABULARY_TOKENS,
    GptConfig,
)

DEFAULT_KIND = "replay"
MAX_STAGES = 1024
MAX_MICROBATCHES = 4096
MAX_ITERATIONS = 10_000
MAX_REPEATS = 1000
MAX_VARIANTS = 100
MAX_POOL_GPUS = 65_536

Clock = Literal["real", "virtual"]
"""The clock of the emulation that is run, or that a simulation predicts."""


class ModelSpec(StrictModel):
    """The model's dimensions, or in their place the name of one of ``NAMED_MODELS``.

    Compute times that are written out need ``context`` (tokens in a sequence) and ``hidden`` alone; a compute profile,
    torch, and gradients to be summed need all of them.
    """

    hidden: Annotated[int, whole_number(1, MAX_HIDDEN)]
    context: Annotated[int, whole_number(1, MAX_CONTEXT_TOKENS)]
    layers: Annotated[int, whole_number(1, MAX_LAYERS)] | None = None
    heads: Annotated[int, whole_number(1, MAX_HEADS)] | None = None
    vocabulary: Annotated[int, whole_number(1, MAX_VOCABULARY_TOKENS)] | None = None

    @property
    def config(self) -> GptConfig | None:
        """The model to build; None where a dimension that this needs is left out. Raises ValueError if it is none."""
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


def _model_by_name(written: object) -> object:
    if isinstance(written, str) and written in NAMED_MODELS:
        return NAMED_MODELS[written]
    if isinstance(written, Mapping | ModelSpec):
        return written
    raise ValueError(
        f"{shown(written)} is no model: known are {', '.join(NAMED_MODELS)}, or give its hidden and context"
    )


def _known_backend(written: object) -> str:
    name = written if isinstance(written, str) else repr(written)
    load_backend(backend_class_path(name))
    return name


class ComputeSpec(StrictModel):
    """The computation of the stages.

    ``replay`` occupies the GPU for as long as a stage is known to take: as a compute ``profile`` says for the model
    (``checkpointing``, default true: each stage recomputes its forward before its backward), or as is written here:
    ``forward`` (default 50ms), ``backward`` (default: twice the forward), of it ``backward_weight`` where a schedule
    splits it (default: half), ``recompute`` (default 0ms) and ``optimizer`` (default 0ms), the time of one microbatch
    at one stage (the optimizer's once an iteration): one value for all stages, or a list with one for each.

    ``activation`` is what one microbatch sends over a stage boundary, forward as the activation and back as its
    gradient: one value, or a list with one for each of the stages - 1 boundaries, entry i lying between the stages i
    and i + 1 (default: the model's context x hidden in the precision of training). ``gradient`` is what a stage's
    replicas all-reduce after an iteration: one value, or a list with one for each stage (default: the stage's
    parameters in that precision).

    ``torch`` trains the model on ``device`` (default auto: a GPU where there is one) with ``threads`` (default 1) for
    each rank. A planned schedule takes its times from the ``profile`` (default cpu) then. On GPUs, each GPU of a host
    is a real one of its own, unless ``sharing`` (default 1) lets so many of them have one together. torch.profiler
    watches ``check_iteration`` (default: none), one of the warm-up, as a check on the busy times that ranks take.

    Any other kind is a back end that another package brings, constructed with ``options`` (default: none).
    """

    kind: Annotated[str, BeforeValidator(_known_backend)] = DEFAULT_KIND
    profile: NameOrPath | None = None
    checkpointing: Truth | None = None
    forward: StageDurationsNs | None = None
    backward: StageDurationsNs | None = None
    backward_weight: StageDurationsNs | None = None
    recompute: StageDurationsNs | None = None
    optimizer: StageDurationsNs | None = None
    activation: BoundarySizesBytes | None = None
    gradient: BoundarySizesBytes | None = None
    device: Literal["auto", "cpu", "cuda"] | None = None
    threads: Annotated[int, whole_number(1, 1024)] | None = None
    sharing: Annotated[int, whole_number(1, 1024)] | None = None
    check_iteration: Annotated[int, whole_number(0, MAX_ITERATIONS)] | None = None
    options: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_kind(cls, written: object) -> object:
        if not isinstance(written, Mapping):
            return written
        try:
            backend = load_backend(backend_class_path(str(written.get("kind", DEFAULT_KIND))))
        except ValueError:
            # Told of the field itself.
            return written
        if written.get("profile") is None and backend.planning_profile is None:
            defaults: dict[str, object] = {"forward": "50ms", "recompute": "0ms", "optimizer": "0ms"}
        else:
            defaults = {"checkpointing": True}
        if backend.on_device:
            defaults |= {"device": "auto", "threads": 1}
        return {**written, **{name: value for name, value in defaults.items() if written.get(name) is None}}

    @model_validator(mode="after")
    def _fields_belong_together(self) -> "ComputeSpec":
        try:
            backend = self.backend
        except ValueError as refusal:
            raise ValueError(f"options: {refusal}") from None
        replaced = "the profile gives them" if backend.planning_profile is None else f"{backend.title} measures them"
        for name in ("forward", "backward", "backward_weight", "recompute", "optimizer"):
            if getattr(self, name) is not None and self.times_profile is not None:
                raise ValueError(f"{name}: times are not written here, {replaced}: leave {name} out")
        for name in ("activation", "gradient"):
            if backend.trains and getattr(self, name) is not None:
                raise ValueError(f"{name}: {backend.title} sends what the model makes: leave {name} out")
        if self.sharing is not None and self.device == "cpu":
            raise ValueError("sharing: only GPUs are shared: give device: cuda, or leave sharing out")
        for name in ("device", "threads", "sharing", "check_iteration"):
            if not backend.on_device and getattr(self, name) is not None:
                raise ValueError(f"{name}: only torch computes on a device: give kind: torch, or leave {name} out")
        if self.checkpointing is not None and self.times_profile is None:
            raise ValueError("checkpointing: times are written out here: give a recompute time, or leave it out")
        return self

    @property
    def backend_path(self) -> str:
        """The path of the class that computes, ``package.module:Class``."""
        return backend_class_path(self.kind)

    @property
    def backend(self) -> ComputeBackend:
        """What is to be known of this kind of compute."""
        return create_backend(self.backend_path, self.options)

    @property
    def times_profile(self) -> str | None:
        """The compute profile that gives or stands for the times of stages, None where they are written here."""
        return self.profile or self.backend.planning_profile

    @model_serializer(mode="wrap")
    def _without_no_options(self, write: SerializerFunctionWrapHandler) -> Any:
        document = write(self)
        return document if self.options else {name: value for name, value in document.items() if name != "options"}


class TrainingSpec(StrictModel):
    """The training: ``stages`` (default: one for every GPU that the pipelines leave), its batches and its length.

    Defaults: 1 pipeline, 16 microbatches of one sequence in each, 3 iterations, of which the first 1 (``warmup``) is
    run and kept, but not counted in any figure. ``memory_bound`` is how many microbatches a stage may hold at once
    (default: any number). ``precision`` (default bf16) is that of activations, weights and gradients;
    ``learning_rate`` (default 0.0003) AdamW's; ``text`` a file to learn from, relative to the experiment's (default:
    synthetic tokens from the seed).
    """

    stages: Annotated[int, whole_number(1, MAX_STAGES)] | None = None
    pipelines: Annotated[int, whole_number(1, MAX_PIPELINES)] = 1
    microbatches: Annotated[int, whole_number(1, MAX_MICROBATCHES)] = 16
    iterations: Annotated[int, whole_number(1, MAX_ITERATIONS)] = 3
    warmup: Annotated[int, whole_number(0, MAX_ITERATIONS)] = 1
    memory_bound: Annotated[int, whole_number(1, MAX_MICROBATCHES)] | None = None
    precision: Literal["bf16", "fp32"] = "bf16"
    learning_rate: LearningRate = 3e-4
    text: NameOrPath | None = None


class VariantTrainingSpec(StrictModel):
    """The fields that a variant sets differently from ``training``; what is left out is as there.

    All variants of a sweep point train on equally many sequences an iteration.
    """

    stages: Annotated[int, whole_number(1, MAX_STAGES)] | None = None
    pipelines: Annotated[int, whole_number(1, MAX_PIPELINES)] | None = None
    microbatches: Annotated[int, whole_number(1, MAX_MICROBATCHES)] | None = None
    memory_bound: Annotated[int, whole_number(1, MAX_MICROBATCHES)] | None = None


class TransportSpec(StrictModel):
    """The TCP transport between two neighbouring stages.

    ``connections`` (default 1) between the two hosts, or ``auto``: as many as fill the node pair's cap. ``window``
    (default 6MiB, as on a stock Debian) is the maximum of ``tcp_rmem``; 0.7 of it are given to data in flight, and in
    virtual time, where the kernel is left to itself, about half. ``congestion`` (default cubic) is the congestion
    control.
    ``slow_start_after_idle`` (default true, as in Linux) makes a connection that paused start slowly again.

    ``sharing: temporal`` (default none) lets the ``pipelines_per_cell`` pipelines of a DP-cell take turns on a stage
    boundary that crosses the WAN: each transfer goes over the node pairs of all of them. ``auto`` (the default) takes
    as many pipelines as a transfer lasts forwards; they divide the number of pipelines.

    ``all_reduce`` (default ring) selects what all-reduces the gradients of a stage's replicas: this project's ring over
    the same connections as all else; or torch's own ``nccl``, between GPUs, or ``gloo``, each over sockets that it
    makes itself and among replicas in one datacenter. A simulation takes all of them as the ring.

    ``model`` (default tcp) selects how a simulation models all this: ``ideal`` has transfers without windows, slow
    start and headers, which no emulation can.
    """

    model: Literal["tcp", "ideal"] = "tcp"
    connections: Connections = 1
    window: WindowBytes = 6 * 2**20
    congestion: CongestionControl = "cubic"
    slow_start_after_idle: Truth = True
    sharing: Literal["none", "temporal"] = "none"
    pipelines_per_cell: PipelinesPerCell = AUTO
    all_reduce: Literal["ring", "nccl", "gloo"] = "ring"

    @model_validator(mode="after")
    def _cells_share(self) -> "TransportSpec":
        if self.sharing == "none" and self.pipelines_per_cell != AUTO:
            raise ValueError("pipelines_per_cell: only pipelines that share form cells: give sharing: temporal")
        return self


class VariantSpec(StrictModel):
    """One of the things compared: a schedule, its options (default: none), and a transport.

    ``placement`` names the datacenter of each stage, in one list for all pipelines or one for each, or is ``auto``: the
    one with the shortest simulated iteration that the planner finds; by default stages lie evenly and contiguously, all
    replicas of a stage in one datacenter. ``training`` is what this variant cuts differently.

    Where the experiment has a section ``prefill``, that of the variant says when GPUs prefill: ``planned`` (default),
    in bubbles and only as far as training is not in the way; ``greedy``, whenever they are idle; or ``none``, never.
    ``pool`` (default 0) is how many GPUs of the hosts that serve do nothing but prefill, for all datacenters together.
    """

    name: PrintableName
    schedule: PrintableName
    options: dict[str, JsonValue] = Field(default_factory=dict)
    transport: TransportSpec = TransportSpec()
    placement: StageDatacenters | None = None
    training: VariantTrainingSpec = VariantTrainingSpec()
    prefill: Policy | None = None
    pool: Annotated[int, whole_number(0, MAX_POOL_GPUS)] = 0


class ExperimentSpec(StrictModel):
    """The whole experiment file. Only ``topology`` is required.

    Defaults: ``name`` is the file's; the model gpt-a; one variant, GPipe over one connection; no ``prefill``; no sweep;
    1 repeat; seed 0; engine ``emulate`` (or ``simulate``) with the clock ``real`` (or ``virtual``, on which computation
    is free and idle time jumped over); ``dilation`` auto, which is 1 wherever the machine carries the links.
    """

    name: PrintableName = "experiment"
    topology: TopologySpec
    model: Annotated[ModelSpec, BeforeValidator(_model_by_name)] = NAMED_MODELS["gpt-a"]
    compute: ComputeSpec = ComputeSpec()
    training: TrainingSpec = TrainingSpec()
    variants: tuple[VariantSpec, ...] = (VariantSpec(name="gpipe", schedule="gpipe"),)
    prefill: PrefillSpec | None = None
    sweep: dict[str, tuple[JsonValue, ...]] = Field(default_factory=dict)
    repeats: Annotated[int, whole_number(1, MAX_REPEATS)] = 1
    seed: Annotated[int, whole_number(0, 2**63 - 1)] = 0
    engine: Literal["emulate", "simulate"] = "emulate"
    clock: Clock = "real"
    dilation: Dilation = AUTO

    @field_validator("sweep", mode="before")
    @classmethod
    def _sweep_holds_lists(cls, written: object) -> object:
        if not isinstance(written, Mapping):
            raise ValueError("give a mapping of paths to lists, like {topology.wan.latency: [10ms, 40ms]}")
        for path, values in written.items():
            if not isinstance(values, list | tuple) or not values:
                raise ValueError(f"{path}: {shown(values)} is no list of values, write it like [10ms, 40ms]")
        return written

    @model_validator(mode="after")
    def _prefill_is_described(self) -> "ExperimentSpec":
        for position, variant in enumerate(self.variants):
            for name in ("prefill", "pool"):
                if self.prefill is None and getattr(variant, name) not in {None, 0, "none"}:
                    raise ValueError(
                        f"variants.{position}.{name}: nothing says what is prefilled: give a section prefill, like "
                        "{trace: poisson, rate: 4/s}"
                    )
        return self

    @field_validator("variants")
    @classmethod
    def _names_are_unique(cls, variants: tuple[VariantSpec, ...]) -> tuple[VariantSpec, ...]:
        if not 1 <= len(variants) <= MAX_VARIANTS:
            raise ValueError(f"there are {len(variants)}, give 1 to {MAX_VARIANTS}")
        names = [variant.name for variant in variants]
        for position, name in enumerate(names):
            if name in names[:position]:
                raise ValueError(f"two variants are named {name!r}, give each its own name")
        return variants

    def document(self) -> dict[str, Any]:
        """Return the file again, every default written out, in plain JSON types; reading it gives an equal experiment.

        Links keep only what was written, since what they leave out follows ``wan``, which a sweep may change. Values
        that follow from others (a backward of twice the forward, say) stay null for the same reason.
        """
        document = self.model_dump(mode="json")
        document["topology"]["links"] = [
            link.model_dump(mode="json", exclude_unset=True) for link in self.topology.links
        ]
        return document
