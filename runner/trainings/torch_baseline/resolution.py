"""Describe a variant whose schedule is run by torch itself."""

from dataclasses import dataclass

from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.written_variant import TrainingCut, WrittenVariant
from wanbed.workloads.baselines.baseline_config import BASELINE_SCHEDULES, BaselineShape


@dataclass(frozen=True, kw_only=True)
class BaselineVariant(PipelineVariant):
    """A variant that torch trains: ``schedule`` is the name of one of its schedules, or of data parallelism."""

    @property
    def follows_own_schedule(self) -> bool:
        """Tell whether ranks of wanbed follow the schedule."""
        return False

    @property
    def overlaps_all_reduce(self) -> bool:
        """Tell whether wanbed's all-reduces overlap: there are none."""
        return False

    @property
    def sums_gradients(self) -> bool:
        """Tell whether replicas sum gradients: torch's do, whatever their size is."""
        return True


_OF_OUR_TRANSPORT = tuple(
    f"transport.{name}"
    for name in (
        "connections",
        "keep_warm",
        "sharing",
        "all_reduce",
        "all_reduce_overlap",
        "bucket",
        "piece",
        "overlap",
        "held_until",
        "receive",
        "activation",
    )
)


def check_baseline(written: WrittenVariant, cut: TrainingCut) -> None:
    """Raise InputError for what torch does not do with a schedule of its own."""
    compute, variant, here, name = written.spec.compute, written.variant, written.field, written.variant.schedule
    bound = Exclusion(("training.memory_bound", "training.memory"), f"{name} keeps no bound of microbatches")
    checked = Exclusion(
        "compute.check_iteration",
        "torch runs every schedule here itself, and no profiler checks its busy times",
        when=all(each.schedule in BASELINE_SCHEDULES for each in written.spec.variants),
    )
    check_exclusions(
        Exclusion(
            "schedule",
            f"{name} is run by torch itself, which does not run beside another job",
            "give one of wanbed's schedules",
            when=written.job is not None,
            leave="jobs",
        ),
        Exclusion(
            "schedule",
            f"{name} is torch's own",
            "give compute: {kind: torch}",
            when=not compute.backend.torch_schedules,
            leave="the variant",
        ),
        Exclusion(
            "schedule",
            f"{name} keeps its activations, so that the others should too",
            "give compute.checkpointing: false",
            when=compute.checkpointing is not False,
            leave="the variant",
        ),
        bound,
        Exclusion("options", f"{name} takes none"),
        Exclusion(_OF_OUR_TRANSPORT, "torch's Gloo makes its own connections"),
        of=variant,
        where=f"{here}.",
    )
    check_exclusions(bound, checked, of=written.spec)
    try:
        BaselineShape(variant.schedule, cut.stages, cut.pipelines, cut.microbatches)
    except ValueError as refusal:
        raise InputError(f"{here}.training.{refusal}") from None
