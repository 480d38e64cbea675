"""Assign real GPUs of this machine to the emulated hosts of an experiment."""

import os

from runner.resolve.checks.all_reduce_check import check_collective_gpus
from runner.resolve.experiment import Experiment, SweepPoint
from testbed.gpus.gpu_assignment import VISIBLE_DEVICES, GpuAssignment, assign_gpus
from testbed.gpus.gpus import machine_gpus, visible_gpus
from testbed.gpus.nvml import BINDING_INSTALL
from testbed.kernel.missing import MissingError


def provision_gpus(point: SweepPoint, source: str) -> GpuAssignment | None:
    """Return the GPUs of every host of a sweep point, whose file is ``source``; None where nothing computes on one.

    That is where compute takes no device, where it is told to use the CPU, and where it may choose and there is no GPU.
    Raises InputError for more emulated GPUs than the machine has, unless ``compute.sharing`` allows it, and
    MissingError where the device is cuda and there is none, the GPUs there are cannot be told apart, or they are too
    few for a variant that sums over NCCL.
    """
    gpus = _assigned(point, source)
    check_collective_gpus(point.variants, gpus)
    return gpus


def _assigned(point: SweepPoint, source: str) -> GpuAssignment | None:
    compute = point.spec.compute
    if not compute.backend.on_device or compute.device == "cpu":
        return None
    gpus = visible_gpus(machine_gpus(), os.environ.get(VISIBLE_DEVICES))
    if not gpus and compute.device != "cuda":
        return None
    if not gpus:
        raise MissingError(
            f"compute.device: cuda, and this machine offers no NVIDIA GPU ({VISIBLE_DEVICES} may hide some, and a "
            "container may lack them): bring one, or give device: cpu"
        )
    uuids = [gpu.uuid for gpu in gpus if gpu.uuid is not None]
    if len(uuids) < len(gpus):
        raise MissingError(f"hosts get their GPUs by UUID, which nothing here tells: {BINDING_INSTALL}")
    return assign_gpus(point.topology, uuids, sharing=compute.sharing or 1, source=source)


def check_gpus(experiment: Experiment, source: str) -> None:
    """Raise what ``provision_gpus`` raises for any sweep point, before anything is made."""
    for point in experiment.points():
        provision_gpus(point, source)
