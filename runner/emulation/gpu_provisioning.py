"""Assign real GPUs of this machine to the emulated hosts of an experiment."""

import os

from runner.resolve.checks.all_reduce_check import check_collective_gpus
from runner.resolve.experiment import Experiment, SweepPoint
from testbed.gpus.gpu_assignment import VISIBLE_DEVICES, GpuAssignment, assign_gpus
from testbed.gpus.gpus import machine_gpus, visible_gpus
from testbed.gpus.nvml import BINDING_INSTALL
from testbed.kernel.missing import MissingError


def provision_gpus(point: SweepPoint) -> GpuAssignment | None:
    """Return the real GPUs of every host of a sweep point, None if nothing computes on a GPU.

    Nothing does if the back end uses no device, if the device is cpu, or if it is auto and there is no GPU.
    Raise InputError for more emulated GPUs than the machine has, unless ``compute.sharing`` allows it. Raise
    MissingError if the device is cuda and there is no GPU, if a GPU has no known UUID, or if there are too few GPUs for
    a variant that all-reduces over NCCL.
    """
    gpus = _assigned(point)
    check_collective_gpus(point.variants, gpus)
    return gpus


def _assigned(point: SweepPoint) -> GpuAssignment | None:
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
        raise MissingError(f"hosts get their GPUs by UUID, which cannot be read here: {BINDING_INSTALL}")
    return assign_gpus(point.topology, uuids, sharing=compute.sharing or 1)


def check_gpus(experiment: Experiment) -> None:
    """Raise the error of ``provision_gpus`` for any sweep point, before anything is started."""
    for point in experiment.points():
        provision_gpus(point)
