"""Compute the stage costs of a pipeline: how long one microbatch occupies each stage, and how much it sends.

The costs of virtual stages are those of a profile, or equal parts of the stage's costs in the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from wanbed.ground.errors import InputError
from wanbed.ground.units import MAX_DURATION_NS, MAX_SIZE_BYTES, format_duration, format_size
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.model_spec import DEFAULT_MODEL
from wanbed.workloads.compute.replay import ReplayCosts, ReplayDurations, ReplaySizes
from wanbed.workloads.gpt.gpt_config import GptConfig, bytes_per_element
from wanbed.workloads.profiles.catalogue import load_profile
from wanbed.workloads.profiles.compute_profile import MeasuredConditions, MeasuredProfile, MeasuredStageCosts
from wanbed.workloads.schedules.pipeline_shape import VirtualStages

_Value = TypeVar("_Value", bool, int)


@dataclass(frozen=True)
class StageCosts:
    """The costs of each stage. Every field has one entry per stage, but ``activation_bytes`` one per stage boundary.

    Times are per microbatch, the optimizer's per iteration. A schedule that splits the backward uses
    ``backward_input_ns`` and ``backward_weight_ns`` instead of ``backward_ns``; their sum may differ from it. Boundary
    i lies between stages i and i + 1; the gradient that returns over it is as large as the activation.
    ``gradient_bytes`` is the size that the replicas of a stage all-reduce.

    ``virtual`` has the costs of each virtual stage in the order of the model, None where stages are not divided. Then
    the stage's times are the sums of those of its parts, and boundaries lie between virtual stages.
    """

    forward_ns: tuple[int, ...]
    backward_ns: tuple[int, ...]
    backward_input_ns: tuple[int, ...]
    backward_weight_ns: tuple[int, ...]
    recompute_ns: tuple[int, ...]
    optimizer_ns: tuple[int, ...]
    activation_bytes: tuple[int, ...]
    gradient_bytes: tuple[int, ...]
    virtual: "StageCosts | None" = None

    @property
    def stages(self) -> int:
        """The number of stages."""
        return len(self.forward_ns)

    @property
    def recomputes(self) -> tuple[bool, ...]:
        """Tell whether each stage recomputes its forward: its recompute time is above zero."""
        return tuple(duration_ns > 0 for duration_ns in self.recompute_ns)

    def keeping_last(self) -> "StageCosts":
        """Return the costs of a schedule whose last stage keeps its activations instead of computing them again."""
        return replace(self, recompute_ns=(*self.recompute_ns[:-1], 0))

    def replay(self, stage: int) -> ReplayCosts:
        """Return the costs of one stage for the replay back end. What its virtual stages send is not in them."""
        whole = self.virtual is None
        return ReplayCosts(
            ReplayDurations(
                forward_ns=self.forward_ns[stage],
                backward_ns=self.backward_ns[stage],
                recompute_ns=self.recompute_ns[stage],
                backward_input_ns=self.backward_input_ns[stage],
                backward_weight_ns=self.backward_weight_ns[stage],
                optimizer_ns=self.optimizer_ns[stage],
            ),
            ReplaySizes(
                following_bytes=self.activation_bytes[stage] if whole and stage + 1 < self.stages else 0,
                previous_bytes=self.activation_bytes[stage - 1] if whole and stage > 0 else 0,
                gradient_bytes=self.gradient_bytes[stage],
            ),
        )

    def document(self) -> Mapping[str, Any]:
        """Return every figure in plain JSON types."""
        own = (entry.name for entry in fields(self) if entry.name != "virtual")
        document: dict[str, Any] = {name: list(getattr(self, name)) for name in own}
        return document if self.virtual is None else {**document, "virtual": self.virtual.document()}


def stage_costs(spec: ExperimentSpec, stages: int, pipelines: int, directory: Path) -> StageCosts:
    """Return the costs of every stage of a model split into ``stages`` stages.

    A compute profile given as a path is read relative to ``directory``. Gradients are 0 bytes for a single pipeline,
    unless the file gives them. Raise InputError for lists of the wrong length, missing dimensions of the model, and a
    profile that does not fit.
    """
    return replace(
        stage_times(spec, stages, directory),
        activation_bytes=activation_bytes(spec, stages),
        gradient_bytes=gradient_bytes(spec, stages, pipelines),
    )


def stage_times(spec: ExperimentSpec, stages: int, directory: Path) -> StageCosts:
    """Return the costs of stages that send nothing, as ``stage_costs`` does: their times, and sizes of 0 bytes."""
    compute, backend, name = spec.compute, spec.compute.backend, spec.compute.times_profile
    if name is None:
        return _written(spec, stages)
    config = model_config(spec, backend.title if backend.trains else "a compute profile")
    check_cut(config, stages)
    if backend.trains and not config.trains_in_torch:
        raise InputError(
            f"model: {backend.title} trains a plain GPT, of architecture gpt with as many kv_heads as heads, a "
            "feed_forward of 4 times hidden and a head of its own: leave these fields out, or replay the model by an "
            "estimated compute.profile"
        )
    try:
        profile = load_profile(name, relative_to=directory)
        times = profile.stage_times(config, stages)
    except InputError as refusal:
        raise InputError(f"compute.profile: {str(refusal).removeprefix('compute.profile: ')}") from None
    if not backend.real_time and profile.precision != spec.training.precision:
        raise InputError(
            f"training.precision: {spec.training.precision}, where the profile {name} holds for "
            f"{profile.precision}: give that precision, or another profile"
        )
    _check_profile_times(times, name)
    asked = True if compute.checkpointing is None else compute.checkpointing
    checkpointing = _each(asked, stages, "stages", "compute.checkpointing")
    return StageCosts(
        forward_ns=tuple(stage.forward_ns for stage in times),
        backward_ns=tuple(stage.backward_ns for stage in times),
        backward_input_ns=tuple(stage.backward_input_ns for stage in times),
        backward_weight_ns=tuple(stage.backward_weight_ns for stage in times),
        recompute_ns=tuple(
            stage.recompute_ns if recomputes else 0 for stage, recomputes in zip(times, checkpointing, strict=True)
        ),
        optimizer_ns=tuple(stage.optimizer_ns for stage in times),
        activation_bytes=(0,) * (stages - 1),
        gradient_bytes=(0,) * stages,
    )


def profile_conditions(spec: ExperimentSpec, directory: Path) -> MeasuredConditions | None:
    """Return the conditions of the compute profile that gives the stages' times, None unless it was measured."""
    name = spec.compute.times_profile if spec.compute.from_run is None else None
    profile = None if name is None else load_profile(name, relative_to=directory)
    return profile.conditions if isinstance(profile, MeasuredProfile) else None


def model_config(spec: ExperimentSpec, needed_by: str) -> GptConfig:
    """Return the model with all its dimensions, and its cut if ``training.layers`` lists it.

    Raise InputError if there is none, or a dimension is not valid.
    """
    if spec.model is None:
        raise InputError(f"model: {needed_by} needs one: give a model, like {DEFAULT_MODEL}")
    try:
        config = spec.model.config
    except ValueError as fault:
        raise InputError(f"model.{fault}") from None
    if config is None:
        missing = [name for name in ("layers", "heads", "vocabulary") if getattr(spec.model, name) is None]
        raise InputError(f"model: {needed_by} needs its {', '.join(missing)} too")
    layers = spec.training.layers
    # A list that does not fit is refused where the variant's layers are divided.
    return replace(config, cut=layers) if isinstance(layers, tuple) and sum(layers) == config.layers else config


def _written(spec: ExperimentSpec, stages: int) -> StageCosts:
    def each(name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        value = getattr(spec.compute, name)
        return _each(default if value is None else value, stages, "stages", f"compute.{name}")

    forward_ns = each("forward")
    backward_ns = each("backward", tuple(2 * duration_ns for duration_ns in forward_ns))
    backward_weight_ns = each("backward_weight", tuple(duration_ns // 2 for duration_ns in backward_ns))
    for stage, (part_ns, whole_ns) in enumerate(zip(backward_weight_ns, backward_ns, strict=True)):
        if part_ns > whole_ns:
            raise InputError(f"compute.backward_weight: at stage {stage} longer than the backward that it is part of")
    return StageCosts(
        forward_ns,
        backward_ns,
        tuple(whole_ns - part_ns for whole_ns, part_ns in zip(backward_ns, backward_weight_ns, strict=True)),
        backward_weight_ns,
        each("recompute"),
        each("optimizer"),
        activation_bytes=(0,) * (stages - 1),
        gradient_bytes=(0,) * stages,
    )


def _check_profile_times(times: Sequence[MeasuredStageCosts], profile: str) -> None:
    for stage, stage_times in enumerate(times):
        for name, duration_ns in asdict(stage_times).items():
            if duration_ns > MAX_DURATION_NS:
                raise InputError(
                    f"compute.profile: by {profile} the {name.removesuffix('_ns')} of stage {stage} takes "
                    f"{duration_ns / 1e9:.3g} s, more than {format_duration(MAX_DURATION_NS)}: take a smaller model, "
                    "more stages or another profile"
                )


def _check_model_bytes(size_bytes: int, field: str) -> None:
    """Raise InputError if the model's dimensions give more than the largest size that ``field`` may have."""
    if size_bytes > MAX_SIZE_BYTES:
        raise InputError(
            f"model: its dimensions make {size_bytes / 2**30:.3g} GiB of {field}, more than "
            f"{format_size(MAX_SIZE_BYTES)}: take a smaller model, or give compute.{field}"
        )


def activation_bytes(spec: ExperimentSpec, stages: int) -> tuple[int, ...]:
    """Return the size of an activation over each boundary. Raise InputError if nothing gives it."""
    size_bytes = spec.compute.activation
    if size_bytes is None and stages == 1:
        size_bytes = 0
    if size_bytes is None:
        if spec.model is None:
            raise InputError(
                "compute.activation: no model gives the size that a microbatch sends over a stage boundary: write it, "
                f"like 32MiB, or give a model, like {DEFAULT_MODEL}"
            )
        size_bytes = spec.model.context * spec.model.hidden * bytes_per_element(spec.training.precision)
        _check_model_bytes(size_bytes, "activation")
    return _each(size_bytes, stages - 1, "boundaries between stages", "compute.activation")


def gradient_bytes(spec: ExperimentSpec, stages: int, pipelines: int) -> tuple[int, ...]:
    """Return the size that the replicas of each stage all-reduce. Raise InputError if nothing gives it."""
    if spec.compute.gradient is not None:
        return _each(spec.compute.gradient, stages, "stages", "compute.gradient")
    if pipelines == 1:
        return (0,) * stages
    if spec.model is None:
        raise InputError(
            "compute.gradient: no model gives the size that a stage's replicas all-reduce: write it, like 500MB, or "
            f"give a model, like {DEFAULT_MODEL}"
        )
    config = model_config(spec, "the all-reduce of gradients (or give compute.gradient)")
    check_cut(config, stages)
    found = tuple(config.gradient_bytes(stage, stages, spec.training.precision) for stage in range(stages))
    _check_model_bytes(max(found), "gradient")
    return found


def check_cut(config: GptConfig, stages: int) -> None:
    """Raise InputError if a model cannot be cut into so many stages."""
    if stages > config.layers:
        raise InputError(
            f"training.stages: {stages} stages of a model of {config.layers} layers: use fewer stages, or "
            "give the model more layers"
        )
    if config.tied_head and stages > 1:
        raise InputError(
            "model.tied_head: the first and the last of several stages would sum the gradients of their two copies of "
            "the embedding, which no engine does: write tied_head: false, or training.stages: 1"
        )


def _each(value: _Value | tuple[_Value, ...], count: int, what: str, field: str) -> tuple[_Value, ...]:
    if not isinstance(value, tuple):
        return (value,) * count
    if len(value) != count:
        raise InputError(f"{field}: a list of {len(value)} for {count} {what}: give one for each, or a single value")
    return value


def virtual_stage_costs(spec: ExperimentSpec, virtual: VirtualStages, pipelines: int, directory: Path) -> StageCosts:
    """Return the costs of stages that hold the ``virtual`` stages, with the costs of each of those.

    With a compute profile the model is cut into virtual stages, and a stage takes the sum of its parts. Otherwise each
    part takes the same share of its stage's times, in whole nanoseconds that add up to the stage's. The replicas of a
    stage all-reduce the gradients of all its parts together. ``compute.activation`` is one size, or one for each
    boundary between virtual stages.

    Raise InputError as ``stage_costs`` does, and for a model with fewer layers than virtual stages.
    """
    compute = spec.compute
    if compute.times_profile is not None or (compute.gradient is None and pipelines > 1 and spec.model is not None):
        _check_layers(spec, virtual)
    if compute.times_profile is not None:
        parts = stage_times(spec, virtual.count, directory)
        whole = _together(parts, virtual)
    else:
        whole = stage_times(spec, virtual.stages, directory)
        parts = _shared_out(whole, virtual)
    if compute.gradient is not None:
        gradients = gradient_bytes(spec, virtual.stages, pipelines)
    else:
        gradients = _sums(gradient_bytes(spec, virtual.count, pipelines), virtual)
    sizes = activation_bytes(spec, virtual.count)
    parts = replace(parts, activation_bytes=sizes)
    return replace(whole, activation_bytes=sizes, gradient_bytes=gradients, virtual=parts)


def _check_layers(spec: ExperimentSpec, virtual: VirtualStages) -> None:
    layers = model_config(spec, "a cut into virtual stages").layers
    if virtual.count > layers:
        raise InputError(
            f"training.virtual_stages: {virtual.stages} stages of {virtual.chunks} cut the model's {layers} layers "
            f"into {virtual.count} parts: give fewer of either, or the model more layers"
        )


def _times(costs: StageCosts) -> tuple[str, ...]:
    return tuple(entry.name for entry in fields(costs) if entry.name.endswith("_ns"))


def _together(parts: StageCosts, virtual: VirtualStages) -> StageCosts:
    """Return the costs of whole stages, whose times are the sums of those of their parts."""
    times: dict[str, Any] = {name: _sums(getattr(parts, name), virtual) for name in _times(parts)}
    return replace(parts, **times)


def _sums(of_parts: Sequence[int], virtual: VirtualStages) -> tuple[int, ...]:
    return tuple(
        sum(of_parts[virtual.number(stage, chunk)] for chunk in range(virtual.chunks))
        for stage in range(virtual.stages)
    )


def _shared_out(whole: StageCosts, virtual: VirtualStages) -> StageCosts:
    """Return the costs of the virtual stages, which share each stage's times equally."""

    def shares(of_stages: Sequence[int]) -> tuple[int, ...]:
        places = [virtual.place(number) for number in range(virtual.count)]
        return tuple(
            of_stages[stage] * (chunk + 1) // virtual.chunks - of_stages[stage] * chunk // virtual.chunks
            for stage, chunk in places
        )

    times: dict[str, Any] = {name: shares(getattr(whole, name)) for name in _times(whole)}
    return replace(whole, **times, gradient_bytes=(0,) * virtual.count)
