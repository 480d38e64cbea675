"""Find the schedule that a variant names."""

from dataclasses import dataclass

from wanbed.ground.strict_model import InputError, prefixed
from wanbed.runner.experiment.compute_spec import TRACE_SCHEDULE
from wanbed.runner.experiment.other_schedules import OTHER_SCHEDULES
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.workloads.baselines.baseline_config import BASELINE_SCHEDULES, TORCH_DDP
from wanbed.workloads.schedules.registry import schedule_class_path
from wanbed.workloads.schedules.schedule import Schedule, load_schedule
from wanbed.workloads.synchronization.synchronization import ATOM, DILOCO


@dataclass(frozen=True)
class ScheduleChoice:
    """The schedule that a variant names. ``kind`` is its class, None for a name that torch runs itself."""

    name: str
    kind: type[Schedule] | None

    @property
    def path(self) -> str:
        """The path of the class, or the name that torch has."""
        return self.name if self.kind is None else f"{self.kind.__module__}:{self.kind.__qualname__}"

    @property
    def whole_replicas(self) -> bool:
        """Whether each pipeline is the whole model on neighbouring GPUs, rather than cut over datacenters."""
        return self.name == TORCH_DDP if self.kind is None else self.kind.whole_replicas

    @property
    def keeps_last(self) -> bool:
        """Whether the last stage keeps its activations, where others recompute theirs."""
        return self.kind is not None and not self.kind.last_stage_recomputes


def choose_schedule(written: WrittenVariant) -> ScheduleChoice:
    """Return the schedule that a variant names. Raise InputError if none loads."""
    name = written.variant.schedule
    return ScheduleChoice(name, None if name in BASELINE_SCHEDULES else schedule_class(written))


def schedule_class(written: WrittenVariant) -> type[Schedule]:
    """Return the class of a variant's schedule. Raise InputError if none loads."""
    if written.variant.schedule in {ATOM, DILOCO}:
        raise InputError(
            f"{written.field}.schedule: {written.variant.schedule} has no plan: leave the variant out, or plan the "
            "schedule of a replica"
        )
    if written.variant.schedule == TRACE_SCHEDULE:
        raise InputError(f"{written.field}.schedule: a trace has its own layout: there is nothing to plan")
    with prefixed(f"{written.field}."):
        path = schedule_class_path(written.variant.schedule, also=OTHER_SCHEDULES)
    try:
        return load_schedule(path)
    except ValueError as refusal:
        raise InputError(f"{written.field}.schedule: {refusal}") from None
