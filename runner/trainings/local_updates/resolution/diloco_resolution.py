"""Resolve ``schedule: diloco`` and ``atom``: the schedule in each replica, and when the replicas synchronise."""

from dataclasses import dataclass, replace

from wanbed.ground.strict_model import InputError
from wanbed.runner.experiment.quantities import AUTO
from wanbed.runner.experiment.transport_spec import OVERLAPS_ALL_REDUCE
from wanbed.runner.experiment.variant_spec import VariantSpec
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.trainings.local_updates.resolution.local_updates_variant import LocalUpdatesVariant
from wanbed.runner.trainings.local_updates.resolution.swapped_costs import Swapping
from wanbed.runner.trainings.local_updates.resolution.swapping_check import WHOLE_MODEL_SCHEDULE, check_swapping
from wanbed.runner.trainings.local_updates.spec.atom_options import parse_atom_options
from wanbed.runner.trainings.local_updates.spec.diloco_options import (
    DilocoOptions,
    SynchronizationOptions,
    parse_diloco_options,
)
from wanbed.workloads.model.gpt_config import bytes_per_element
from wanbed.workloads.schedules.registry import schedule_class_path
from wanbed.workloads.swapping.grouping import Grouping
from wanbed.workloads.synchronization.synchronization import ATOM, DILOCO, SumTopology, Synchronization
from wanbed.workloads.synchronization.wire_format import WireFormat


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
        iterations, warmup = self.inner.iterations, self.inner.spec.training.warmup
        if iterations - warmup < self.synchronization.sync_every:
            raise InputError(
                f"{field}.options.sync_every: {self.synchronization.sync_every}, and {iterations - warmup} iterations "
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
        check_swapping(written)
        _check_company(written)
        training = variant.training.model_copy(update={"stages": 1})
        inner = variant.model_copy(update={"schedule": WHOLE_MODEL_SCHEDULE, "options": {}, "training": training})
        swapping = Swapping(atom.swap, atom.memory)
        return TrainedAlone(_with_variant(written, inner), _synchronization(atom, field), swapping)
    if variant.schedule != DILOCO:
        return None
    options = parse_diloco_options(variant.options, field)
    synchronization = _synchronization(options, field)
    _check_inner(options, written)
    _check_company(written)
    inner = variant.model_copy(update={"schedule": options.inner, "options": options.inner_options})
    return TrainedAlone(_with_variant(written, inner), synchronization)


def _with_variant(written: WrittenVariant, inner: VariantSpec) -> WrittenVariant:
    variants = tuple(inner if each is written.variant else each for each in written.spec.variants)
    return replace(written, spec=written.spec.model_copy(update={"variants": variants}))


def _synchronization(options: SynchronizationOptions, field: str) -> Synchronization:
    try:
        return Synchronization(
            options.sync_every,
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


def _check_company(written: WrittenVariant) -> None:
    """Raise InputError for what replicas that train alone do not go with."""
    variant, transport, field = written.variant, written.variant.transport, written.field
    if written.job is not None:
        raise InputError(
            f"{field}.schedule: replicas that synchronise seldom do not run beside another job: leave jobs out, or it"
        )
    if variant.placement == AUTO:
        raise InputError(
            f"{field}.placement: the planner places stages whose gradients are summed in every iteration: name the "
            "datacenters, or leave it out"
        )
    if written.spec.prefill is not None and variant.prefill != "none":
        raise InputError(
            f"{field}.prefill: bubbles are forecast for replicas that sum gradients in every iteration: give prefill: "
            "none"
        )
    if transport.sharing != "none":
        raise InputError(
            f"{field}.transport.sharing: replicas that train alone do not take turns on links: leave sharing out"
        )
    if transport.all_reduce != "ring":
        raise InputError(
            f"{field}.transport.all_reduce: no gradients are all-reduced, and synchronisations have options.topology: "
            "leave all_reduce out"
        )
    if transport.all_reduce_overlap and not OVERLAPS_ALL_REDUCE:
        raise InputError(
            f"{field}.transport.all_reduce_overlap: no gradients are all-reduced: give options.delay for "
            "synchronisations that overlap, and leave all_reduce_overlap out"
        )
    if not written.spec.compute.backend.synchronizes:
        raise InputError(
            f"{field}.schedule: {written.spec.compute.backend.title} does not synchronise replicas: give kind: replay "
            "or torch"
        )
