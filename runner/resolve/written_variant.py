"""Describe a variant as the experiment file has it at one sweep point, before it is resolved."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from wanbed.ground.errors import InputError, prefixed
from wanbed.ground.exclusions import Declared, Exclusion, Refusal, as_check
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.job_spec import JobSpec
from wanbed.runner.experiment.training_spec import MAX_MICROBATCHES, MAX_STAGES
from wanbed.runner.experiment.variant_spec import VariantSpec, other_schedules
from wanbed.runner.resolve.measured_times import MeasuredTimes, measured_times
from wanbed.runner.trainings.registry import TRAININGS, training_title
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.baselines.baseline_config import BASELINE_SCHEDULES, TORCH_DDP
from wanbed.workloads.schedules.registry import schedule_class_path
from wanbed.workloads.schedules.schedule import Schedule, load_schedule
from wanbed.workloads.synchronization.synchronization import ATOM, DILOCO


@dataclass(frozen=True)
class WrittenVariant:
    """A variant of the experiment file at one sweep point, by its position in ``variants``.

    Relative paths start at ``directory``. ``values`` are the swept values of the sweep point, as text by path.
    """

    spec: ExperimentSpec
    position: int
    topology: Topology
    directory: Path
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def variant(self) -> VariantSpec:
        """The variant itself."""
        return self.spec.variants[self.position]

    @property
    def job(self) -> JobSpec | None:
        """The job that the variant is of, None where the experiment has no jobs."""
        return next((job for job in self.spec.jobs if self.variant.name in job.variants), None)

    @property
    def iterations(self) -> int:
        """The iterations of a trial: the job's, otherwise those of the experiment."""
        own = None if self.job is None else self.job.iterations
        return own or self.spec.training.iterations

    @cached_property
    def measured(self) -> MeasuredTimes | None:
        """The compute times of the run ``compute.from``, None without one. Raise InputError if it has none that fit."""
        run = self.spec.compute.from_run
        return None if run is None else measured_times(self.directory / run, self.variant.name, self.values)

    @property
    def is_prefilled(self) -> bool:
        """Tell whether the experiment's prefill goes into the bubbles of this variant."""
        return self.spec.prefill is not None and self.variant.prefill != "none"

    @property
    def field(self) -> str:
        """The path of the variant in the experiment file, for error messages."""
        return f"variants.{self.position}"


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
        """Tell whether each pipeline is the whole model on neighbouring GPUs, rather than cut over datacenters."""
        return self.name == TORCH_DDP if self.kind is None else self.kind.whole_replicas

    @property
    def keeps_last(self) -> bool:
        """Tell whether the last stage keeps its activations, where others recompute theirs."""
        return self.kind is not None and not self.kind.last_stage_recomputes


def choose_schedule(written: WrittenVariant) -> ScheduleChoice:
    """Return the schedule that a variant names. Raise InputError if none loads."""
    name = written.variant.schedule
    return ScheduleChoice(name, None if name in BASELINE_SCHEDULES else schedule_class(written))


def schedule_class(written: WrittenVariant) -> type[Schedule]:
    """Return the class of a variant's schedule. Raise InputError if none loads."""
    _check_has_plan(written)
    with prefixed(f"{written.field}."):
        path = schedule_class_path(written.variant.schedule, also=other_schedules())
    try:
        return load_schedule(path)
    except ValueError as refusal:
        raise InputError(f"{written.field}.schedule: {refusal}") from None


@as_check
def _check_has_plan(written: WrittenVariant) -> Iterator[Declared]:
    """Raise InputError for a kind of training that is named in place of a schedule, and follows none."""
    here, name = f"{written.field}.schedule", written.variant.schedule
    remedy = "plan the schedule of a replica"
    yield Exclusion(here, f"{name} has no plan", remedy, when=name in {ATOM, DILOCO}, leave="the variant")
    if name in TRAININGS:
        yield Refusal(f"{here}: {training_title(name)} has its own layout: there is nothing to plan")


@dataclass(frozen=True)
class TrainingCut:
    """The training dimensions of a variant: its own values, otherwise those of the experiment.

    ``microbatches`` are those of an iteration, of all its ``flushes``. ``memory_bytes`` is the memory of a GPU, None
    for no limit.
    """

    stages: int
    pipelines: int
    microbatches: int
    memory_bound: int | None
    virtual_stages: int
    flushes: int = 1
    memory_bytes: int | None = None


def training_cut(written: WrittenVariant, *, whole_replicas: bool) -> TrainingCut:
    """Return the training dimensions of a variant. The default of ``stages`` is as many as the GPUs allow."""
    own, common = written.variant.training, written.spec.training
    pipelines = own.pipelines or common.pipelines
    gpus = [sum(host.gpus for host in datacenter.hosts) for datacenter in written.topology.datacenters]
    room = sum(gpus) // pipelines if whole_replicas else sum(count // pipelines for count in gpus)
    stages = own.stages or common.stages or max(room, 1)
    if stages > MAX_STAGES:
        raise InputError(
            f"training.stages: the hosts have {stages} GPUs, more than the {MAX_STAGES} stages there can be: "
            "give how many to use"
        )
    of_flush, flushes = own.microbatches or common.microbatches, own.accumulate or common.accumulate
    if flushes > 1 and of_flush * flushes > MAX_MICROBATCHES:
        raise InputError(
            f"training.accumulate: {flushes} flushes of {of_flush} microbatches are {of_flush * flushes} an iteration, "
            f"more than {MAX_MICROBATCHES}: give fewer of either"
        )
    return TrainingCut(
        stages,
        pipelines,
        of_flush * flushes,
        common.memory_bound if own.memory_bound is None else own.memory_bound,
        own.virtual_stages or common.virtual_stages,
        flushes,
        own.memory or common.memory,
    )


def memory_bound(cut: TrainingCut, schedule: type[Schedule] | None) -> int | None:
    """Return how many microbatches a stage may hold at once: as written, otherwise as the schedule has it."""
    if cut.memory_bound is not None or schedule is None:
        return cut.memory_bound
    return schedule.default_memory_bound(cut.stages)
