"""Compute the costs of replicas that swap a whole model through one GPU: the best groups of its layers, and the stalls.

A compute profile gives each layer's times. Times that the file writes for the whole model are shared out evenly to its
layers, in whole nanoseconds that add up. A layer's weights are as large as its gradients: those of the model, or an
even share of ``compute.gradient``.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from wanbed.ground.strict_model import InputError
from wanbed.ground.units import format_size
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.resolve.stage_costs import StageCosts, model_config, stage_costs
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.workloads.swapping.best_grouping import best_grouping
from wanbed.workloads.swapping.grouping import Grouping, SwappedLayer, SwappedModel


@dataclass(frozen=True)
class Swapping:
    """The rate at which layers move into a GPU, and the memory that two groups share there, None for no limit."""

    rate_bytes_per_s: int
    memory_bytes: int | None


@dataclass(frozen=True)
class SwappedCosts:
    """The costs of a replica, whose forwards and backwards include the waits for loads, and the groups."""

    costs: StageCosts
    grouping: Grouping


def swapped_costs(written: WrittenVariant, swapping: Swapping, microbatches: int, pipelines: int) -> SwappedCosts:
    """Return the costs of a whole model with the groups whose iteration is shortest.

    The waits of a pass are shared out evenly to its microbatches. Raise InputError as ``stage_costs`` does, and for
    layers that do not fit into the memory.
    """
    spec, directory = written.spec, written.directory
    whole = stage_costs(spec, 1, pipelines, directory)
    model = SwappedModel(
        _layers(spec, whole, directory), microbatches, swapping.rate_bytes_per_s, swapping.memory_bytes
    )
    try:
        grouping = best_grouping(model)
    except ValueError:
        assert swapping.memory_bytes is not None
        raise InputError(
            f"{written.field}.options.memory: {format_size(swapping.memory_bytes)} hold no group of the model's layers "
            "together with the next one, whatever the groups: give more, or a smaller model"
        ) from None
    (recompute_ns,) = whole.recompute_ns
    backward_ns = sum(layer.backward_ns for layer in model.layers) - recompute_ns
    backward_ns += grouping.backward_stall_ns // microbatches
    forward_ns = sum(layer.forward_ns for layer in model.layers) + grouping.forward_stall_ns // microbatches
    half_ns = backward_ns // 2
    costs = replace(
        whole,
        forward_ns=(forward_ns,),
        backward_ns=(backward_ns,),
        backward_input_ns=(backward_ns - half_ns,),
        backward_weight_ns=(half_ns,),
    )
    return SwappedCosts(costs, grouping)


def _layers(spec: ExperimentSpec, whole: StageCosts, directory: Path) -> tuple[SwappedLayer, ...]:
    config = model_config(spec, "schedule: atom, which swaps layers,")
    count = config.layers
    if spec.compute.gradient is not None:
        sizes = _shares(whole.gradient_bytes[0], count)
    else:
        sizes = tuple(config.gradient_bytes(layer, count, spec.training.precision) for layer in range(count))
    if spec.compute.times_profile is None:
        forward_ns, backward_ns = _shares(whole.forward_ns[0], count), _shares(whole.backward_ns[0], count)
        recompute_ns = _shares(whole.recompute_ns[0], count)
    else:
        # Times alone are asked for, a layer as a stage each: whether the head is tied changes none.
        assert spec.model is not None
        update = {
            "compute": spec.compute.model_copy(update={"activation": 0, "gradient": 0}),
            "model": spec.model.model_copy(update={"tied_head": False}),
        }
        each = stage_costs(spec.model_copy(update=update), count, 1, directory)
        forward_ns, backward_ns, recompute_ns = each.forward_ns, each.backward_ns, each.recompute_ns
    rows = zip(forward_ns, backward_ns, recompute_ns, sizes, strict=True)
    return tuple(SwappedLayer(forward, backward + recompute, size) for forward, backward, recompute, size in rows)


def _shares(total: int, count: int) -> tuple[int, ...]:
    """Share a total out evenly, in whole numbers that add up to it."""
    return tuple(total * (index + 1) // count - total * index // count for index in range(count))
