"""Refuse what does not go with gradients that are added up over several flushes of a pipeline."""

from collections.abc import Iterator

from wanbed.ground.exclusions import Declared, Exclusion, as_check
from wanbed.runner.experiment.training_spec import Summed
from wanbed.runner.resolve.written_variant import TrainingCut, WrittenVariant
from wanbed.runner.trainings.local_updates.resolution import TrainedAlone
from wanbed.workloads.schedules.schedule import Schedule


def summed(written: WrittenVariant) -> Summed:
    """Return when the replicas of a variant all-reduce their gradients."""
    return written.variant.training.summed or written.spec.training.summed


@as_check
def check_accumulation(
    written: WrittenVariant, cut: TrainingCut, schedule: type[Schedule] | None, alone: TrainedAlone | None
) -> Iterator[Declared]:
    """Raise InputError for what does not go with several flushes. ``schedule`` is None for torch's own."""
    name, own, backend = written.variant.schedule, written.variant.training, written.spec.compute.backend
    several = cut.flushes > 1
    field = "training.accumulate" if own.accumulate is None else f"{written.field}.training.accumulate"
    yield Exclusion(
        field,
        f"torch itself runs {name}, one flush an iteration",
        "give 1, and as many more microbatches",
        when=several and schedule is None,
        leave="",
    )
    yield Exclusion(
        field,
        "atom adds up gradients over the microbatches of a pass, through which each group of layers goes once",
        "give 1, and as many more microbatches",
        when=several and alone is not None and alone.swapping is not None,
        leave="",
    )
    field = "training.summed" if own.summed is None else f"{written.field}.training.summed"
    every = several and summed(written) == "every flush"
    yield Exclusion(
        field,
        "replicas that train alone sum no gradients",
        "give once",
        when=every and alone is not None,
        leave="",
    )
    yield Exclusion(
        field,
        "all-reduces beside backwards follow the last backward of an iteration",
        "give once, or leave transport.all_reduce_overlap out",
        when=every and written.variant.transport.sums_in_buckets,
        leave="",
    )
    yield Exclusion(
        field,
        f"{backend.title} keeps no sum of a flush",
        "give once",
        when=every and not backend.sums_flushes,
        leave="",
    )
