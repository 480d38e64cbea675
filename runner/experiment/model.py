"""Define the fields of the experiment file.

Unknown fields raise an error, so that no value is silently ignored. Defaults are listed in the docstring of each
section. Checks across sections (does the model fit the topology?) happen when sweep points are resolved.
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
"""The clock of the emulation, or of the emulation that a simulation predicts."""


class ModelSpec(StrictModel):
    """The dimensions of the model. The file may give the name of one of ``NAMED_MODELS`` instead.

    With compute times given in the file, ``context`` (tokens in a sequence) and ``hidden`` are enough. A compute
    profile, torch and the default ``gradient`` size need all dimensions.
    """

    hidden: Annotated[int, whole_number(1, MAX_HIDDEN)]
    context: Annotated[int, whole_number(1, MAX_CONTEXT_TOKENS)]
    layers: Annotated[int, whole_number(1, MAX_LAYERS)] | None = None
    heads: Annotated[int, whole_number(1, MAX_HEADS)] | None = None
    vocabulary: Annotated[int, whole_number(1, MAX_VOCABULARY_TOKENS)] | None = None

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
    """How the stages compute.

    ``kind: replay`` occupies the GPU for a known time. The times come from one of two places:

    - a compute ``profile`` for the model. With ``checkpointing`` (default true) each stage recomputes its forward
      before its backward;
    - this file: ``forward`` (default 50ms), ``backward`` (default: twice the forward), ``backward_weight``, which is
      the part of the backward that computes weight gradients where a schedule splits it (default: half),
      ``recompute`` (default 0ms) and ``optimizer`` (default 0ms). Each is the time of one microbatch at one stage; the
      optimizer's is per iteration. Give one value for all stages, or a list with one value for each.

    ``activation`` is the size that one microbatch sends over a stage boundary, forward as the activation and back as
    its gradient. Give one value, or a list with one for each of the stages - 1 boundaries; entry i is the boundary
    between stages i and i + 1 (default: the model's context x hidden in the precision of training). ``gradient`` is
    the size that a stage's replicas all-reduce after an iteration. Give one value, or a list with one for each stage
    (default: the stage's parameters in that precision).

    ``kind: torch`` trains the model on ``device`` (default auto: a GPU where there is one) with ``threads`` (default 1)
    for each rank. A planned schedule then takes its times from the ``profile`` (default cpu). Each GPU of a host is a
    real GPU of its own, unless ``sharing`` (default 1) puts that many of them on one real GPU. torch.profiler records
    ``check_iteration`` (default: none), an iteration of the warm-up, as a check on the busy times of the ranks.

    Any other kind is a back end of another package, constructed with ``options`` (default: none).
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
            # The validator of the field reports the unknown kind.
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
        """The back end of this kind of compute, constructed with ``options``."""
        return create_backend(self.backend_path, self.options)

    @property
    def times_profile(self) -> str | None:
        """The compute profile that gives the times of the stages, None where the file gives them.

        With a back end that measures its own times, planned schedules use this profile.
        """
        return self.profile or self.backend.planning_profile

    @model_serializer(mode="wrap")
    def _without_no_options(self, write: SerializerFunctionWrapHandler) -> Any:
        document = write(self)
        return document if self.options else {name: value for name, value in document.items() if name != "options"}


class TrainingSpec(StrictModel):
    """The size and length of the training.

    ``stages`` (default: as many as the GPUs allow with that many pipelines), ``pipelines`` (default 1),
    ``microbatches`` of one sequence each per pipeline and iteration (default 16), and ``iterations`` (default 3). The
    first ``warmup`` iterations (default 1) are run and kept, but count in no figure. ``memory_bound`` is how many
    microbatches a stage may hold at once (default: no limit). ``precision`` (default bf16) is that of activations,
    weights and gradients. ``learning_rate`` (default 0.0003) is AdamW's. ``text`` is a file to learn from, relative to
    the experiment file (default: synthetic tokens from the seed).
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
    """The fields of ``training`` that a variant overrides. Fields that are left out keep the value of ``training``.

    All variants of a sweep point train on the same number of sequences an iteration.
    """

    stages: Annotated[int, whole_number(1, MAX_STAGES)] | None = None
    pipelines: Annotated[int, whole_number(1, MAX_PIPELINES)] | None = None
    microbatches: Annotated[int, whole_number(1, MAX_MICROBATCHES)] | None = None
    memory_bound: Annotated[int, whole_number(1, MAX_MICROBATCHES)] | None = None


class TransportSpec(StrictModel):
    """The TCP transport between two neighbouring stages.

    ``connections`` (default 1) is the number of TCP connections between the two hosts. ``auto`` opens as many as fill
    the node pair's cap. ``window`` (default 6MiB, as on a stock Debian) is the maximum of ``tcp_rmem``. Data in flight
    gets 0.7 of it, and in virtual time, where the kernel decides by itself, about half. ``congestion`` (default cubic)
    is the congestion control. With ``slow_start_after_idle`` (default true, as in Linux) a connection that was idle
    starts slowly again.

    With ``sharing: temporal`` (default none) the ``pipelines_per_cell`` pipelines of a DP-cell take turns on a stage
    boundary that crosses the WAN: each transfer uses the node pairs of all of them. ``pipelines_per_cell: auto`` (the
    default) takes the duration of a transfer in forwards, rounded up to a divisor of the number of pipelines.

    ``all_reduce`` (default ring) selects how the gradients of a stage's replicas are all-reduced. ``ring`` is this
    project's ring over the same connections as all other traffic. ``nccl`` (between GPUs) and ``gloo`` are torch's;
    they open their own sockets and need all replicas in one datacenter. A simulation treats all of them as the ring.

    ``model`` (default tcp) selects how a simulation models the transport. ``ideal`` has no windows, no slow start and
    no headers; an emulation cannot run it.
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
            raise ValueError("pipelines_per_cell: only pipelines that share form DP-cells: give sharing: temporal")
        return self


class VariantSpec(StrictModel):
    """A variant to compare: a schedule, its options (default: none), and a transport.

    ``placement`` names the datacenter of each stage, in one list for all pipelines or one list for each. ``auto`` takes
    the placement with the shortest simulated iteration that the planner finds. By default stages are placed evenly and
    contiguously, all replicas of a stage in one datacenter. ``training`` overrides fields of the experiment's training.

    ``prefill`` selects when the GPUs that train prefill, if the experiment has a section ``prefill``: ``planned``
    (default) in bubbles, as far as training is not delayed; ``greedy`` whenever they are idle; ``none`` never. ``pool``
    (default 0) is the number of GPUs of the serving hosts that only prefill, over all datacenters.
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

    Defaults: ``name`` is the file's name; the model gpt-a; one variant, GPipe over one connection; no ``prefill``; no
    sweep; 1 repeat; seed 0; engine ``emulate`` (or ``simulate``); clock ``real`` (or ``virtual``, on which computation
    costs no time and idle time is skipped); ``dilation`` auto, which is 1 if the machine can carry the links.
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
                        f"variants.{position}.{name}: there is no section prefill: give one, like "
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
        """Return the experiment file in plain JSON types, with every default filled in.

        Reading the document gives an equal experiment. Links keep only the fields that were written, because the
        others follow ``wan``, which a sweep may change. Values that are derived from others (a backward of twice the
        forward) stay null for the same reason.
        """
        document = self.model_dump(mode="json")
        document["topology"]["links"] = [
            link.model_dump(mode="json", exclude_unset=True) for link in self.topology.links
        ]
        return document
