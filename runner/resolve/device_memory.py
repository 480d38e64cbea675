"""Check, before anything is started, that what torch trains and prefills fits into the memory of its devices.

Several ranks may share a device: the hosts' GPUs one real GPU, or all ranks the machine's memory.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

from wanbed.ground.errors import InputError
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.stage_costs import model_config
from wanbed.runner.resolve.stage_memory import GIB, StageMemory
from wanbed.runner.trainings.local_updates.resolution import LocalUpdatesVariant
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant
from wanbed.workloads.baselines.baseline_config import TORCH_1F1B, TORCH_DDP, TORCH_GPIPE
from wanbed.workloads.bubbletea.prefill_settings import FillPolicy
from wanbed.workloads.profiles.model_parts import TrainingMemory, swapped_memory
from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.schedule import create_schedule

CONTEXT_BYTES = round(0.6 * 2**30)
"""A process's memory on a GPU before its first tensor: its CUDA context, and the code of cuBLAS's kernels."""


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of a device. ``name`` is what a message calls it; ``free_bytes`` is what no other process uses.

    ``context_bytes`` is what each process takes beyond its tensors.
    """

    name: str
    total_bytes: int
    free_bytes: int
    context_bytes: int = CONTEXT_BYTES


@dataclass(frozen=True)
class ProcessNeed:
    """The memory of one process on GPU ``gpu`` of ``host``: of the stage that it trains, and what prefill may use."""

    host: str
    gpu: int
    training: TrainingMemory | None = None
    prefill_bytes: int = 0


def check_device_memory(
    point: SweepPoint,
    device_of: Callable[[str, int], str],
    devices: Mapping[str, DeviceMemory],
    *,
    on_cpu: bool = False,
) -> None:
    """Raise InputError for a variant whose processes need more of a device than it has free.

    ``device_of`` gives the device of a host's GPU. A device that is not among ``devices`` is not checked. ``on_cpu``:
    the device is the CPU, where prefill's part does not count, because its memory is that of GPUs that are not there.
    """
    for position, variant in enumerate(point.variants):
        if not isinstance(variant, PipelineVariant):
            # What a program takes is known to nobody.
            continue
        sharers: dict[str, list[ProcessNeed]] = defaultdict(list)
        for need in process_needs(point, variant, on_cpu=on_cpu):
            if not on_cpu or need.training is not None:
                counted = replace(need, prefill_bytes=0) if on_cpu else need
                sharers[device_of(need.host, need.gpu)].append(counted)
        for device, needs in sharers.items():
            memory = devices.get(device)
            if memory is not None and _total_bytes(needs, memory) > memory.free_bytes:
                raise InputError(f"variants.{position}: {_sum_text(needs, memory)}: {_remedy(needs)}")


def process_needs(point: SweepPoint, variant: PipelineVariant, *, on_cpu: bool = False) -> Iterator[ProcessNeed]:
    """Yield the memory of every process of a variant that computes on a device, on the high side."""
    spec, prefill = point.spec, point.spec.prefill
    config, precision = variant.cut(model_config(spec, "torch")), spec.training.precision
    service = variant.service if variant.service is not None and variant.service.inference is not None else None
    fills = service is not None and service.settings.policy is not FillPolicy.NONE
    room_bytes = prefill.memory - prefill.training_memory if fills and prefill is not None else 0
    layout = variant.layout
    recomputes = tuple(
        not isinstance(variant, BaselineVariant) and variant.shape.recomputes(stage)
        for stage in range(variant.placement.stages)
    )
    memory = StageMemory(
        config,
        precision,
        layout,
        recomputes,
        splits=False,
        keeps_sums=variant.sums_flushes,
        residues_bytes=variant.residues_bytes,
    )
    held = cache(lambda pipeline, stage, chunk: most_in_flight(variant, pipeline, stage, chunk))
    for place in variant.placement.places:
        if isinstance(variant, LocalUpdatesVariant) and variant.grouping is not None:
            memory_bytes = variant.grouping.model.memory_bytes
            need = swapped_memory(
                config, precision, microbatches=variant.microbatches, memory_bytes=memory_bytes, on_cpu=on_cpu
            )
            yield ProcessNeed(place.host.name, place.gpu, need)
            continue
        chunks = [
            held(place.pipeline % variant.pipelines_per_cell, place.stage, chunk) for chunk in range(layout.chunks)
        ]
        yield ProcessNeed(place.host.name, place.gpu, memory.of_chunks(place.stage, chunks), room_bytes)
    if service is None or prefill is None:
        return
    model = service.model
    for datacenter in service.datacenters:
        pooled = {number for group in datacenter.groups if group.pooled for number in group.gpus}
        for gpu in datacenter.gpus:
            if gpu.number in pooled:
                yield ProcessNeed(gpu.host, gpu.index, prefill_bytes=prefill.memory)
        for host in datacenter.decode_hosts:
            yield ProcessNeed(host, 0, prefill_bytes=model.weight_bytes(model.layers, embedding=True, head=True))


def most_in_flight(variant: PipelineVariant, pipeline: int, stage: int, chunk: int = 0) -> int:
    """Return how many microbatches a stage holds at once at most, between their forward and the end of their backward.

    Of a stage that is divided they are those of one of its chunks.

    A schedule of fixed order tells exactly. Others hold what their bound allows, since a slow network may bring them
    there.
    """
    microbatches, stages = variant.microbatches, variant.placement.stages
    if isinstance(variant, BaselineVariant):
        # Torch's zero bubble defers the weights of as many microbatches as there are stages before.
        bounds = {TORCH_GPIPE: microbatches, TORCH_1F1B: stages - stage, TORCH_DDP: 1}
        return min(microbatches, bounds.get(variant.schedule, stages))
    schedule = create_schedule(variant.schedule, variant.shape.flush, variant.schedule_options(pipeline))
    if not isinstance(schedule, FixedOrder):
        return variant.shape.most_in_flight(stage)
    kinds = schedule.kinds(stage)
    held = most = 0
    for action in islice(schedule.order(stage), len(kinds) * microbatches * variant.layout.chunks):
        if action.chunk == chunk:
            held += (action.kind is ActionKind.FORWARD) - (action.kind is kinds[-1])
        most = max(most, held)
    return max(1, most)


def _total_bytes(needs: list[ProcessNeed], memory: DeviceMemory) -> int:
    trained = sum(need.training.total_bytes for need in needs if need.training is not None)
    return trained + sum(need.prefill_bytes for need in needs) + len(needs) * memory.context_bytes


def _sum_text(needs: list[ProcessNeed], memory: DeviceMemory) -> str:
    trained = [need.training for need in needs if need.training is not None]
    parts = {
        "weights": sum(each.weight_bytes for each in trained),
        "gradients": sum(each.gradient_bytes for each in trained),
        "optimizer": sum(each.optimizer_bytes for each in trained),
        "activations": sum(each.activation_bytes for each in trained),
        "prefill": sum(need.prefill_bytes for need in needs),
        "contexts": len(needs) * memory.context_bytes,
    }
    total = _total_bytes(needs, memory)
    parts["fragmentation"] = total - sum(parts.values())
    listed = ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts.items() if size)
    processes = "1 process" if len(needs) == 1 else f"{len(needs)} processes"
    others = memory.total_bytes - memory.free_bytes
    used = f", of which {memory.free_bytes / GIB:.1f} are free" if others > 0 else ""
    return (
        f"{processes} on {memory.name} need {total / GIB:.1f} GiB ({listed}), and it has "
        f"{memory.total_bytes / GIB:.1f} GiB{used}"
    )


def _remedy(needs: list[ProcessNeed]) -> str:
    prefills = sum(need.prefill_bytes for need in needs) > sum(
        need.training.total_bytes for need in needs if need.training is not None
    )
    if prefills:
        return "give less prefill.memory, or let fewer share it"
    return "let fewer share it, give a smaller model, fewer microbatches in flight, or compute: {kind: replay}"
