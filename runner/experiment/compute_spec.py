"""Define the section ``compute`` of the experiment file."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer, model_validator

from ground.strict_model import StrictModel
from runner.experiment.quantities import BoundarySizesBytes, NameOrPath, StageDurationsNs, Truth, whole_number
from runner.experiment.training_spec import MAX_ITERATIONS
from workloads.compute.backends.backend import ComputeBackend, create_backend, load_backend
from workloads.compute.backends.registry import backend_class_path

DEFAULT_KIND = "replay"
WRITTEN_COSTS = ("forward", "backward", "backward_weight", "recompute", "optimizer", "activation", "gradient")
"""The fields that state costs of the stages. Where one is written, they are those of no particular model."""


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
