"""Resolve ``schedule: diloco`` and ``atom``: the schedule in each replica, and when the replicas synchronise.

Replicas of ``atom`` swap a whole model through one GPU, in groups of layers. A compute profile gives each layer's
times. Times that the file writes for the whole model are shared out evenly to its layers, in whole nanoseconds that add
up. A layer's weights are as large as its gradients: those of the model, or an even share of ``compute.gradient``.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Self

from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.ground.units import format_size
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.quantities import AUTO
from wanbed.runner.experiment.variant_spec import VariantSpec
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import Pair
from wanbed.runner.resolve.stage_costs import StageCosts, model_config, stage_costs, stage_times
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.trainings.local_updates.spec import (
    DilocoOptions,
    SynchronizationOptions,
    parse_atom_options,
    parse_diloco_options,
)
from wanbed.workloads.gpt.gpt_config import bytes_per_element
from wanbed.workloads.grouping import Grouping, SwappedLayer, SwappedModel, best_grouping
from wanbed.workloads.schedules.registry import schedule_class_path
from wanbed.workloads.synchronization.synchronization import (
    ATOM,
    DILOCO,
    SumTopology,
    Synchronization,
    WireFormat,
    cut_fragments,
    fragments_bytes,
)
from wanbed.workloads.transport.ring_round import bucket_count, cut_buckets


@dataclass(frozen=True, kw_only=True)
class LocalUpdatesVariant(PipelineVariant):
    """A variant whose replicas exchange pseudo-gradients as ``synchronization`` says, and sum no gradients.

    ``spec`` and ``schedule`` are those within each replica. ``parameters`` are those of each stage. ``grouping`` are
    the groups of layers that each replica swaps through its GPU, None where it swaps none; the times in ``work`` then
    include the waits for them.
    """

    synchronization: Synchronization
    parameters: tuple[int, ...]
    grouping: Grouping | None = None

    @classmethod
    def of(
        cls,
        replica: PipelineVariant,
        synchronization: Synchronization,
        parameters: tuple[int, ...],
        grouping: Grouping | None,
    ) -> Self:
        """Return the variant whose replicas train as ``replica`` does."""
        own = {each.name: getattr(replica, each.name) for each in fields(replica)}
        return cls(**own, synchronization=synchronization, parameters=parameters, grouping=grouping)

    @property
    def overlaps_all_reduce(self) -> bool:
        """Tell whether all-reduces overlap: there are none."""
        return False

    @property
    def begins_beside_backward(self) -> bool:
        """Tell whether a synchronisation begins in the last backward before it, bucket by bucket."""
        return self.transport.sums_in_buckets and self.pipelines > 1

    def buckets_bytes(self, stage: int) -> tuple[int, ...]:
        """Return the sizes of the buckets of a stage's largest fragment, which are summed one after the other."""
        return max(self.fragments_buckets_bytes(stage), key=sum)

    def fragments_buckets_bytes(self, stage: int) -> tuple[tuple[int, ...], ...]:
        """Return the sizes on the wire of each fragment's buckets: one, unless it begins beside the backward.

        All fragments of a stage have as many.
        """
        sizes_bytes = self.fragments_bytes(stage)
        if not self.begins_beside_backward:
            return tuple((size_bytes,) for size_bytes in sizes_bytes)
        fragments, wire = self.synchronization.fragments, self.synchronization.wire
        gradient_bytes = -(-self.work.gradient_bytes[stage] // fragments)
        buckets = min(bucket_count(gradient_bytes, self.transport.bucket), self.parameters[stage] // fragments)
        return tuple(
            tuple(wire.encoded_bytes(end - start) for start, end in cut_buckets(elements, 1, buckets))
            for elements in (end - start for start, end in cut_fragments(self.parameters[stage], fragments))
        )

    def fragments_bytes(self, stage: int) -> tuple[int, ...]:
        """Return the size on the wire of each fragment of a stage."""
        each = self.synchronization
        return fragments_bytes(self.parameters[stage], each.fragments, each.wire)

    def state_bytes(self, stage: int) -> int:
        """Return the size of what a replica begins with that comes back: global parameters and momentum, in fp32."""
        return 2 * 4 * self.parameters[stage]

    @property
    def sums_every_iteration(self) -> bool:
        """Tell whether an optimizer step waits for a sum: only now and then."""
        return False

    @property
    def is_star(self) -> bool:
        """Tell whether replicas synchronise over a star, whose first replica gathers."""
        return self.synchronization.topology is SumTopology.STAR

    @property
    def goes_on_without(self) -> frozenset[int]:
        """The ranks that the others can lose and train on: those of a star with a quorum which do not gather.

        Of replicas with several stages there are none: a rank's neighbours in its pipeline cannot lose it.
        """
        if self.synchronization.quorum is None or self.placement.stages > 1:
            return frozenset()
        return frozenset(range(1, self.pipelines))

    def summing_pairs(self, stage: int) -> tuple[Pair, ...]:
        """Return the replicas of a stage that exchange what they sum: neighbours in a ring, or the star's."""
        if not self.is_star:
            return super().summing_pairs(stage)
        first, *others = self.placement.replicas(stage)
        return tuple((first, other) for other in others)

    def wan_ratio(self, stage: int) -> float:
        """Return how many bytes cross between datacenters for each byte that a replica of a stage sums.

        Over a star every replica's part makes its way to the first one, and the sum makes it back.
        """
        if self.is_star:
            return 2.0 * sum(one.datacenter != other.datacenter for one, other in self.summing_pairs(stage))
        return super().wan_ratio(stage)

    def document(self) -> Mapping[str, Any]:
        """Return what the experiment file leaves open, as resolved, in plain JSON types."""
        stages = range(self.placement.stages)
        return {
            **super().document(),
            **({} if self.grouping is None else {"swapping": self.grouping.document()}),
            "synchronization": {
                # As it was when wanbed's folders were packages of their own: hashes of runs from then stay the same.
                "schedule": self.schedule.removeprefix("wanbed."),
                **asdict(self.synchronization),
                "parameters": list(self.parameters),
                "fragments_bytes": [list(self.fragments_bytes(stage)) for stage in stages],
            },
        }


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
        # A layer as a stage each: whether the head is tied changes no time.
        assert spec.model is not None
        untied = spec.model.model_copy(update={"tied_head": False})
        each = stage_times(spec.model_copy(update={"model": untied}), count, directory)
        forward_ns, backward_ns, recompute_ns = each.forward_ns, each.backward_ns, each.recompute_ns
    rows = zip(forward_ns, backward_ns, recompute_ns, sizes, strict=True)
    return tuple(SwappedLayer(forward, backward + recompute, size) for forward, backward, recompute, size in rows)


def _shares(total: int, count: int) -> tuple[int, ...]:
    """Share a total out evenly, in whole numbers that add up to it."""
    return tuple(total * (index + 1) // count - total * index // count for index in range(count))


WHOLE_MODEL_SCHEDULE: Final = "gpipe"
"""The schedule of a replica that swaps: all forwards, then all backwards, so that each pass loads a layer once."""


def _check_swapping(written: WrittenVariant) -> None:
    """Raise InputError for what swapping does not go with."""
    compute, training, field = written.spec.compute, written.variant.training, written.field
    backend = compute.backend
    divided = training.virtual_stages not in {None, 1} or written.spec.training.virtual_stages != 1
    check_exclusions(
        Exclusion(
            f"{field}.schedule",
            f"{backend.title} does not swap layers",
            "give kind: replay or torch, or schedule: diloco",
            when=not (backend.takes_known_times or backend.swaps),
            leave="",
        ),
        Exclusion(
            "compute.checkpointing",
            "a list says it stage by stage, and atom has no stages",
            "give true or false for all",
            when=isinstance(compute.checkpointing, tuple),
        ),
        Exclusion(
            "compute.checkpointing",
            "a group of atom computes its forward again before its backward, because its weights have left the device",
            when=backend.swaps and compute.checkpointing is False,
            leave="checkpointing or the variant",
        ),
        Exclusion(
            f"{field}.training.stages",
            "atom has the whole model on each GPU",
            "give 1",
            when=training.stages not in {None, 1},
        ),
        Exclusion(
            f"{field}.transport.activation",
            "atom has no stages, between which activations go",
            when=written.variant.transport.activation is not None,
        ),
        Exclusion(f"{field}.schedule", "atom groups layers itself", when=divided, leave="training.virtual_stages"),
    )
    swapped = Exclusion("training.memory", "atom swaps its layers through the memory that options.memory gives")
    check_exclusions(swapped, of=written.spec)
    check_exclusions(swapped, of=written.variant, where=f"{field}.")
    by_times = "atom groups layers by the times of the file or the profile"
    check_exclusions(Exclusion(("compute.slower", "compute.jitter", "compute.from"), by_times), of=written.spec)


@dataclass(frozen=True)
class TrainedAlone:
    """A variant whose replicas train alone. ``inner`` is the variant as if its schedule were that of a replica.

    ``swapping`` is how each replica swaps the whole model through one GPU, None where it does not.
    """

    inner: WrittenVariant
    synchronization: Synchronization
    swapping: Swapping | None = None

    def synchronized(self, resolved: PipelineVariant, grouping: Grouping | None) -> LocalUpdatesVariant:
        """Return the resolved inner variant with its synchronisations, and with what it swaps.

        Raise InputError if it cannot have any.
        """
        field = self.inner.field
        if resolved.pipelines == 1:
            raise InputError(
                f"{field}.training.pipelines: 1, and a single replica has nobody to synchronise with: give 2 or more"
            )
        quorum = self.synchronization.quorum
        if quorum is not None and quorum > resolved.pipelines:
            raise InputError(
                f"{field}.options.quorum: {quorum}, of {resolved.pipelines} replicas: give {resolved.pipelines} or less"
            )
        # The first iteration of all is never measured: it has no period.
        measured = self.inner.iterations - max(self.inner.spec.training.warmup, 1)
        if measured < self.synchronization.sync_every:
            raise InputError(
                f"{field}.options.sync_every: {self.synchronization.sync_every}, and {measured} iterations "
                "are measured: its figures are means over whole periods: give training.iterations more, or synchronise "
                "more often"
            )
        element_bytes = bytes_per_element(self.inner.spec.training.precision)
        parameters = tuple(-(-size_bytes // element_bytes) for size_bytes in resolved.work.gradient_bytes)
        if min(parameters) < self.synchronization.fragments:
            raise InputError(
                f"{field}.options.fragments: {self.synchronization.fragments}, and a stage has {min(parameters)} "
                "parameters: give fewer fragments, or a larger model"
            )
        return LocalUpdatesVariant.of(resolved, self.synchronization, parameters, grouping)


def trained_alone(written: WrittenVariant) -> TrainedAlone | None:
    """Return the variant with its inner schedule, None if it sums gradients in every iteration.

    Raise InputError for options that cannot be, and for what synchronisations do not go with.
    """
    variant, field = written.variant, f"{written.field}.options"
    if variant.schedule == ATOM:
        atom = parse_atom_options(variant.options, field)
        _check_swapping(written)
        _check_company(atom, written)
        training = variant.training.model_copy(update={"stages": 1})
        inner = variant.model_copy(update={"schedule": WHOLE_MODEL_SCHEDULE, "options": {}, "training": training})
        swapping = Swapping(atom.swap, atom.memory)
        return TrainedAlone(_with_variant(written, inner), _synchronization(atom, field), swapping)
    if variant.schedule != DILOCO:
        return None
    options = parse_diloco_options(variant.options, field)
    synchronization = _synchronization(options, field)
    _check_inner(options, written)
    _check_company(options, written)
    inner = variant.model_copy(update={"schedule": options.inner, "options": options.inner_options})
    return TrainedAlone(_with_variant(written, inner), synchronization)


def _with_variant(written: WrittenVariant, inner: VariantSpec) -> WrittenVariant:
    variants = tuple(inner if each is written.variant else each for each in written.spec.variants)
    return replace(written, spec=written.spec.model_copy(update={"variants": variants}))


def _synchronization(options: SynchronizationOptions, field: str) -> Synchronization:
    # As MaxText rounds: to the nearest whole number of iterations for each fragment, of two to the even one.
    period = max(1, round(options.sync_every / options.fragments))
    try:
        return Synchronization(
            period * options.fragments,
            options.fragments,
            options.delay,
            options.alpha,
            options.outer.lr,
            options.outer.momentum,
            WireFormat(options.wire),
            SumTopology(options.topology),
            options.quorum,
        )
    except ValueError as refusal:
        raise InputError(f"{field}.{refusal}") from None


def _check_inner(options: DilocoOptions, written: WrittenVariant) -> None:
    try:
        schedule_class_path(options.inner)
    except InputError as refusal:
        field = f"{written.field}.options.inner"
        raise InputError(*(f"{field}{each.removeprefix('schedule')}" for each in refusal.mistakes)) from None


def _check_company(options: SynchronizationOptions, written: WrittenVariant) -> None:
    """Raise InputError for what replicas that train alone do not go with."""
    variant, transport, backend = written.variant, written.variant.transport, written.spec.compute.backend
    check_exclusions(
        Exclusion(
            "schedule",
            "replicas that synchronise seldom do not run beside another job",
            when=written.job is not None,
            leave="the variant or jobs",
        ),
        Exclusion(
            "placement",
            "the planner places stages whose gradients are summed in every iteration",
            "name the datacenters",
            when=variant.placement == AUTO,
        ),
        Exclusion(
            "prefill",
            "bubbles are forecast for replicas that sum gradients in every iteration",
            "give prefill: none",
            when=written.is_prefilled,
            leave="",
        ),
        Exclusion(
            "transport.sharing",
            "replicas that train alone do not take turns on links",
            when=transport.sharing != "none",
        ),
        Exclusion(
            "transport.all_reduce",
            "no gradients are all-reduced",
            "give options.topology for synchronisations",
            when=transport.all_reduce != "ring",
        ),
        Exclusion(
            "transport.all_reduce_overlap",
            "the replica that gathers a star's sum takes each part at once",
            "give options.topology: ring",
            when=transport.all_reduce_overlap and options.topology == "star",
        ),
        Exclusion(
            "schedule",
            f"{backend.title} does not synchronise replicas",
            "give kind: replay or torch",
            when=not backend.synchronizes,
            leave="",
        ),
        where=f"{written.field}.",
    )
