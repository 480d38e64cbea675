"""Compute the costs of virtual stages: those that a profile gives, or equal shares of what the file gives a stage."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from wanbed.ground.strict_model import InputError
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.resolve.stage_costs import StageCosts, activation_bytes, gradient_bytes, model_config, stage_costs
from wanbed.workloads.schedules.virtual.virtual_stages import VirtualStages


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
    times = spec.model_copy(update={"compute": compute.model_copy(update={"activation": 0, "gradient": 0})})
    if compute.times_profile is not None:
        parts = stage_costs(times, virtual.count, pipelines, directory)
        whole = _together(parts, virtual)
    else:
        whole = stage_costs(times, virtual.stages, pipelines, directory)
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
