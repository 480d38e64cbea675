"""Cut the training of a variant: its stages, pipelines, and microbatches."""

from dataclasses import dataclass

from wanbed.ground.strict_model import InputError
from wanbed.runner.experiment.training_spec import MAX_STAGES
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.workloads.schedules.schedule import Schedule


@dataclass(frozen=True)
class TrainingCut:
    """The training dimensions of a variant: its own values, otherwise those of the experiment."""

    stages: int
    pipelines: int
    microbatches: int
    memory_bound: int | None
    virtual_stages: int


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
    return TrainingCut(
        stages,
        pipelines,
        own.microbatches or common.microbatches,
        common.memory_bound if own.memory_bound is None else own.memory_bound,
        own.virtual_stages or common.virtual_stages,
    )


def memory_bound(cut: TrainingCut, schedule: type[Schedule] | None) -> int | None:
    """Return how many microbatches a stage may hold at once: as written, otherwise as the schedule has it."""
    if cut.memory_bound is not None or schedule is None:
        return cut.memory_bound
    return schedule.default_memory_bound(cut.stages)
