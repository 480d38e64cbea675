"""Count the microbatches that a stage's GPU can hold beside its weights, gradients and optimizer: training.memory.

Bytes are those of torch's training, on the high side (``training_memory``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wanbed.ground.errors import InputError
from wanbed.ground.units import format_size
from wanbed.runner.resolve.stage_costs import check_cut, model_config
from wanbed.runner.resolve.written_variant import TrainingCut, WrittenVariant, memory_bound
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.profiles.model_parts import TrainingMemory, together, training_memory
from wanbed.workloads.schedules.pipeline_shape import VirtualStages
from wanbed.workloads.schedules.schedule import Schedule

GIB = 2**30


@dataclass(frozen=True)
class StageMemory:
    """The memory of the GPUs of a pipeline's stages, each of which holds the chunks of ``virtual``.

    ``recomputes`` tells of each stage whether its backwards compute the forward again, ``splits`` whether backwards
    are split. Where replicas sum each flush, the gradients of the flushes before are kept beside the current ones:
    ``keeps_sums``. ``residues_bytes`` is what error feedback keeps at each part of the model, () without any.
    """

    config: GptConfig
    precision: str
    virtual: VirtualStages
    recomputes: tuple[bool, ...]
    splits: bool
    keeps_sums: bool = False
    residues_bytes: tuple[int, ...] = ()

    def of(self, stage: int, held: int) -> TrainingMemory:
        """Return the memory of a stage that holds so many microbatches at once, one at least."""
        return self.of_chunks(stage, [held] * self.virtual.chunks)

    def of_chunks(self, stage: int, held: Sequence[int]) -> TrainingMemory:
        """Return the memory of a stage of whose chunks each holds so many microbatches at once."""
        parts = [
            training_memory(
                self.config,
                self.virtual.number(stage, chunk),
                self.virtual.count,
                self.precision,
                in_flight=in_flight,
                recompute=self.recomputes[stage],
                splits=self.splits,
            )
            for chunk, in_flight in enumerate(held)
        ]
        whole = together(parts)
        if self.residues_bytes:
            numbers = [self.virtual.number(stage, chunk) for chunk in range(self.virtual.chunks)]
            residues_bytes = sum(self.residues_bytes[number] for number in numbers)
            whole = replace(whole, activation_bytes=whole.activation_bytes + residues_bytes)
        return replace(whole, gradient_bytes=2 * whole.gradient_bytes) if self.keeps_sums else whole

    def most_held(self, stage: int, memory_bytes: int) -> int:
        """Return the most microbatches that a stage can hold in so much memory, 0 if not even one."""
        one, two = (self.of(stage, held).total_bytes for held in (1, 2))
        if one > memory_bytes:
            return 0
        most = 1 + (memory_bytes - one) // max(two - one, 1)
        # Totals are rounded.
        return most if self.of(stage, most).total_bytes <= memory_bytes else most - 1


@dataclass(frozen=True)
class HeldBytes:
    """The bytes of each stage's GPU with one microbatch and of each further one, and the memory that it has."""

    limit_bytes: int
    first_bytes: tuple[int, ...]
    further_bytes: tuple[int, ...]

    @classmethod
    def of(cls, memory: StageMemory, stages: int, limit_bytes: int) -> "HeldBytes":
        """Return those of all stages."""
        one, two = ([memory.of(stage, held).total_bytes for stage in range(stages)] for held in (1, 2))
        return cls(limit_bytes, tuple(one), tuple(more - less for less, more in zip(one, two, strict=True)))


def held_microbatches(
    written: WrittenVariant, cut: TrainingCut, schedule: type[Schedule] | None, memory: StageMemory | None
) -> int | tuple[int, ...] | None:
    """Return how many microbatches each stage may hold at once, by ``memory_bound`` and by the memory of a GPU.

    Raise InputError for a stage that cannot hold a single one.
    """
    bound = memory_bound(cut, schedule)
    if memory is None or cut.memory_bytes is None:
        return bound
    fitting = [memory.most_held(stage, cut.memory_bytes) for stage in range(cut.stages)]
    if min(fitting) < 1:
        raise InputError(_too_small(written, cut, memory, fitting.index(min(fitting))))
    most = cut.microbatches if bound is None else bound
    return tuple(min(each, most) for each in fitting)


def stage_memory(
    written: WrittenVariant,
    cut: TrainingCut,
    schedule: type[Schedule] | None,
    *,
    recomputes: tuple[bool, ...],
    virtual: VirtualStages | None = None,
    keeps_sums: bool = False,
    residues_bytes: tuple[int, ...] = (),
) -> StageMemory | None:
    """Return the memory of a variant's stages, None if the model does not tell it.

    A schedule that decides in its plan whether to split is taken to split. Raise InputError for a model that lacks a
    dimension, or layers, where ``training.memory`` needs them.
    """
    virtual = virtual or VirtualStages(cut.stages)
    config = None if written.spec.model is None else written.spec.model.config
    if cut.memory_bytes is not None and schedule is not None:
        config = model_config(written.spec, "training.memory")
        check_cut(config, virtual.count)
    if schedule is None or config is None or virtual.count > config.layers:
        return None
    return StageMemory(
        config,
        written.spec.training.precision,
        virtual,
        recomputes,
        schedule.splits_with(written.variant.options) is not False,
        keeps_sums,
        residues_bytes,
    )


def memory_text(memory: TrainingMemory) -> str:
    """Return the memory with its parts: ``61.2 GiB (weights 3.0, gradients 3.0, optimizer 24.0, activations 25.6)``."""
    parts = {
        "weights": memory.weight_bytes,
        "gradients": memory.gradient_bytes,
        "optimizer": memory.optimizer_bytes,
        "activations": memory.activation_bytes,
    }
    listed = ", ".join(f"{name} {size_bytes / GIB:.1f}" for name, size_bytes in parts.items())
    return f"{memory.total_bytes / GIB:.1f} GiB ({listed}, and a tenth more)"


def _too_small(written: WrittenVariant, cut: TrainingCut, memory: StageMemory, stage: int) -> str:
    own = written.variant.training.memory
    field = "training.memory" if own is None else f"{written.field}.training.memory"
    return (
        f"{field}: stage {stage} of {cut.stages} takes {memory_text(memory.of(stage, 1))} with a single microbatch, "
        f"more than {format_size(cut.memory_bytes or 0)}: give more stages, or more memory"
    )
