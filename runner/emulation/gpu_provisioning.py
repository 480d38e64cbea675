"""Assign real GPUs of this machine to the emulated hosts of an experiment."""

import os

from wanbed.ground.errors import MissingError
from wanbed.runner.companions.prefill.resolution import check_memory_for_weights
from wanbed.runner.resolve.all_reduce_check import check_collective_gpus
from wanbed.runner.resolve.device_memory import DeviceMemory, check_device_memory
from wanbed.runner.resolve.experiment import Experiment, SweepPoint
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.testbed.gpus.gpu_assignment import VISIBLE_DEVICES, GpuAssignment, assign_gpus
from wanbed.testbed.gpus.gpus import Gpu, GpuMemory, device_files, gpu_memories, machine_gpus, visible_gpus
from wanbed.testbed.gpus.nvml import BINDING_INSTALL

_CPU = "cpu"


def provision_gpus(point: SweepPoint) -> GpuAssignment | None:
    """Return the real GPUs of every host of a sweep point, None if nothing computes on a GPU.

    Nothing does if neither the back end uses a device nor there is a program, if the device is cpu, or if it is auto
    and there is no GPU.
    Raise InputError for more emulated GPUs than the machine has, unless ``compute.sharing`` allows it. Raise
    MissingError if the device is cuda and there is no GPU, if there are GPUs that cannot be listed or used, if a GPU
    has no known UUID, or if there are too few GPUs for a variant that all-reduces over NCCL.
    """
    gpus = _visible(point)
    uuids = [gpu.uuid for gpu in gpus if gpu.uuid is not None]
    if len(uuids) < len(gpus):
        raise MissingError(f"hosts get their GPUs by UUID, which cannot be read here: {BINDING_INSTALL}")
    assigned = None
    if gpus:
        parents = {gpu.uuid: gpu.parent for gpu in gpus if gpu.uuid is not None and gpu.parent is not None}
        assigned = assign_gpus(point.topology, uuids, sharing=point.spec.compute.sharing or 1, parents=parents)
    check_collective_gpus(point.variants, assigned)
    return assigned


def resolved_device(point: SweepPoint, gpus: GpuAssignment | None) -> str | None:
    """Return the device that every process of a sweep point computes on, cuda or cpu; None if it uses no device.

    ``gpus`` is the assignment of ``provision_gpus``, which has decided it. A rank that decided again by what torch sees
    could take a GPU that nobody has assigned.
    """
    if not point.spec.compute.backend.on_device:
        return None
    return _CPU if gpus is None else "cuda"


def check_gpus(experiment: Experiment) -> None:
    """Raise the error of ``provision_gpus`` for any sweep point, before anything is started.

    Raise InputError too if what is computed does not fit into the memory of the GPUs or, on the CPU, of this machine.
    """
    for point in experiment.points():
        gpus = provision_gpus(point)
        device = resolved_device(point, gpus)
        if device is None:
            continue
        if gpus is not None:
            memories = gpu_memories(sorted({seat.uuid for seat in gpus.seats()}))
            check_device_memory(point, gpus.uuid, {uuid: device_memory(uuid, each) for uuid, each in memories.items()})
        else:
            check_memory_for_weights(variant.service for variant in point.variants if variant.service is not None)
            total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            machine = DeviceMemory("the CPU", total_bytes, total_bytes, context_bytes=0)
            check_device_memory(point, lambda *_: _CPU, {_CPU: machine}, on_cpu=True)


def device_memory(uuid: str, memory: GpuMemory, machine: str | None = None) -> DeviceMemory:
    """Return the memory of a GPU as it is checked; ``machine`` is that of a rack's GPU."""
    where = "" if machine is None else f" of {machine}"
    return DeviceMemory(f"{memory.model} ({uuid}){where}", memory.total_bytes, memory.free_bytes)


def _visible(point: SweepPoint) -> tuple[Gpu, ...]:
    """Return the GPUs that are to be assigned, () if nothing computes on a GPU."""
    compute, programs = point.spec.compute, any(isinstance(variant, ProgramVariant) for variant in point.variants)
    if not (compute.backend.on_device or programs) or compute.device == _CPU:
        return ()
    listed = machine_gpus()
    gpus = visible_gpus(listed, os.environ.get(VISIBLE_DEVICES))
    if gpus:
        return gpus
    faults = [f"{gpu.model} ({gpu.fault})" for gpu in listed if gpu.fault is not None]
    where = f"compute.device: {compute.device or 'auto'}"
    if faults and len(faults) == len(listed):
        raise MissingError(f"{where}, and no GPU here can be used: {', '.join(faults)}; or give device: cpu")
    if not listed and (files := device_files()):
        raise MissingError(
            f"{where}, and {files[0]} shows a GPU that neither NVML nor /proc/driver/nvidia lists: "
            f"{BINDING_INSTALL}, or give device: cpu"
        )
    if compute.device == "cuda":
        raise MissingError(
            f"{where}, and this machine offers no NVIDIA GPU ({VISIBLE_DEVICES} may hide some, and a "
            "container may lack them): bring one, or give device: cpu"
        )
    return ()
