"""Describe a variant whose schedule is run by torch itself."""

from dataclasses import dataclass

from wanbed.ground.errors import InputError
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.written_variant import TrainingCut, WrittenVariant
from wanbed.workloads.baselines.baseline_config import BaselineShape


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


def check_baseline(written: WrittenVariant, cut: TrainingCut) -> None:
    """Raise InputError for what torch does not do with a schedule of its own."""
    compute, variant, here = written.spec.compute, written.variant, written.field
    if written.job is not None:
        raise InputError(
            f"{here}.schedule: {variant.schedule} is run by torch itself, which does not run beside another job: give "
            "one of wanbed's schedules, or leave jobs out"
        )
    if not compute.backend.torch_schedules:
        raise InputError(f"{here}.schedule: {variant.schedule} is torch's own: give compute: {{kind: torch}}")
    if compute.checkpointing is not False:
        raise InputError(
            f"{here}.schedule: {variant.schedule} keeps its activations, so that the others should too: give "
            "compute.checkpointing: false"
        )
    try:
        BaselineShape(variant.schedule, cut.stages, cut.pipelines, cut.microbatches)
    except ValueError as refusal:
        raise InputError(f"{here}.training.{refusal}") from None
    if cut.memory_bound is not None:
        raise InputError(
            f"{here}.training.memory_bound: {variant.schedule} keeps no bound of {cut.memory_bound} microbatches: "
            "leave memory_bound out of its training and of training"
        )
    if variant.options:
        raise InputError(f"{here}.options: {variant.schedule} takes none: leave options out")
    for name in ("connections", "sharing", "all_reduce", "all_reduce_overlap", "bucket", "overlap"):
        if getattr(variant.transport, name) != TransportSpec.model_fields[name].default:
            raise InputError(f"{here}.transport.{name}: torch's Gloo makes its own connections: leave {name} out")
