"""Divide the layers of a model over its stages, as ``training.layers`` says: evenly, as listed, or balanced.

Balanced, the slowest stage takes as little time for a microbatch as can be. Times grow with the layers of a stage by
the same amount each. So layers are dealt one by one, each to the stage that takes the least time with it: no other cut
has a faster slowest stage.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from wanbed.ground.errors import InputError
from wanbed.runner.experiment.training_spec import Layers
from wanbed.runner.resolve.stage_costs import StageCosts, check_cut, model_config, stage_times
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.profiles.model_parts import stage_bytes

Slowest = Callable[[StageCosts], StageCosts]
"""Returns costs as the slowest GPU of each stage takes them."""


@dataclass(frozen=True)
class StageTime:
    """The time of a stage for a microbatch: ``base_ns`` and ``layer_ns`` for each layer, of which it has room."""

    base_ns: float
    layer_ns: float
    most_layers: int

    def of(self, layers: int) -> float:
        """Return the time with so many layers."""
        return self.base_ns + layers * self.layer_ns


def layers_asked(written: WrittenVariant) -> Layers:
    """Return how the file divides the layers: the variant's own way, otherwise that of ``training``."""
    return written.variant.training.layers or written.spec.training.layers


def with_layers(written: WrittenVariant, layers: Layers) -> WrittenVariant:
    """Return the variant as if the file divided the layers so."""
    if written.spec.training.layers == layers:
        return written
    training = written.spec.training.model_copy(update={"layers": layers})
    return replace(written, spec=written.spec.model_copy(update={"training": training}))


def with_layers_each(written: WrittenVariant, stages: int, layers: int) -> WrittenVariant:
    """Return the variant with a model of which each of the stages has so many layers."""
    model = written.spec.model
    assert model is not None
    alike = with_layers(written, "even")
    whole = model.model_copy(update={"layers": layers * stages})
    return replace(alike, spec=alike.spec.model_copy(update={"model": whole}))


def cut_layers(
    written: WrittenVariant, stages: int, slowest: Slowest, *, keeps_last: bool, memory_bytes: int | None
) -> tuple[int, ...] | None:
    """Return the number of layers of each stage, None where they are divided evenly.

    ``keeps_last`` is whether the last stage recomputes nothing. No stage gets more layers than fit into
    ``memory_bytes`` with a microbatch. Raise InputError for a list that does not fit the stages or the model, and where
    no times tell what is balanced.
    """
    asked, field = layers_asked(written), _field(written)
    if asked == "even":
        return None
    config = model_config(written.spec, field)
    check_cut(config, stages)
    if isinstance(asked, tuple):
        if len(asked) != stages:
            raise InputError(f"{field}: a list of {len(asked)} for {stages} stages: give one number for each")
        if sum(asked) != config.layers:
            raise InputError(
                f"{field}: {sum(asked)} layers in all, and the model has {config.layers}: give numbers that add up"
            )
        return asked
    if written.spec.compute.times_profile is None:
        raise InputError(
            f"{field}: balanced, and the file has the times of each stage itself: give compute.profile, or list layers"
        )
    if written.measured is not None:
        raise InputError(
            f"{field}: balanced, and compute.from has measured the stages of another cut: list its layers instead"
        )
    one, two = (_times_ns(written, stages, layers, slowest, keeps_last=keeps_last) for layers in (1, 2))
    times = [
        StageTime(2 * one_ns - two_ns, two_ns - one_ns, _room(written, config, stage, stages, memory_bytes))
        for stage, (one_ns, two_ns) in enumerate(zip(one, two, strict=True))
    ]
    dealt = balanced(config.layers, times)
    if dealt is None:
        raise InputError(
            f"training.memory: {stages} stages have no room for {config.layers} layers: give more of either"
        )
    return dealt


def balanced(layers: int, stages: Sequence[StageTime]) -> tuple[int, ...] | None:
    """Return the number of layers of each stage, one at least, with the least time of the slowest; None without room.

    Of stages that take the same time the first one gets the layer.
    """
    counts = [1] * len(stages)
    if layers < len(stages) or any(each.most_layers < 1 for each in stages):
        return None
    waiting = [(each.of(2), stage) for stage, each in enumerate(stages) if each.most_layers > 1]
    heapify(waiting)
    for _ in range(layers - len(stages)):
        if not waiting:
            return None
        _, stage = heappop(waiting)
        counts[stage] += 1
        if counts[stage] < stages[stage].most_layers:
            heappush(waiting, (stages[stage].of(counts[stage] + 1), stage))
    return tuple(counts)


def _times_ns(written: WrittenVariant, stages: int, layers: int, slowest: Slowest, *, keeps_last: bool) -> list[int]:
    """Return the time for a microbatch of each of the stages, if each had so many layers."""
    costs = stage_times(with_layers_each(written, stages, layers).spec, stages, written.directory)
    costs = slowest(costs.keeping_last() if keeps_last else costs)
    return [sum(each) for each in zip(costs.forward_ns, costs.recompute_ns, costs.backward_ns, strict=True)]


def _room(written: WrittenVariant, config: GptConfig, stage: int, stages: int, memory_bytes: int | None) -> int:
    """Return the most layers of a stage that fit into the memory of a GPU with one microbatch."""
    if memory_bytes is None:
        return config.layers
    precision = written.spec.training.precision
    one, two = (stage_bytes(replace(config, layers=layers * stages), stage, stages, precision) for layers in (1, 2))
    # Sizes are rounded.
    return max(0, 1 + (memory_bytes - one - 1) // (two - one))


def _field(written: WrittenVariant) -> str:
    return "training.layers" if written.variant.training.layers is None else f"{written.field}.training.layers"
