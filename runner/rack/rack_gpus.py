"""Decide which hosts of a rack compute on GPUs, and on which."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from wanbed.runner.rack.host_placement import Node
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.testbed.gpus.gpu_assignment import GpuAssignment, assign_gpus
from wanbed.testbed.gpus.gpus import Gpu
from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.network.topology import Topology


def gpu_sharing(point: SweepPoint, nodes: Sequence[Node]) -> int | None:
    """Return how many emulated GPUs of a sweep point may share a real one, None if nothing computes on GPUs.

    Nothing does if neither the back end uses a device nor there is a program, if the device is cpu, or if it is auto
    and Ray counts no GPU on the machines that may carry hosts. Raise MissingError if it is cuda and there is none.
    """
    compute, programs = point.spec.compute, any(isinstance(variant, ProgramVariant) for variant in point.variants)
    if not (compute.backend.on_device or programs) or compute.device == "cpu":
        return None
    if any(node.gpus for node in nodes if node.has_room):
        return compute.sharing or 1
    if compute.device == "cuda":
        raise MissingError(
            "compute.device: cuda, and Ray counts no GPU on the rack's machines: give `ray start` --num-gpus, or "
            "device: cpu"
        )
    return None


def assigned_gpus(
    topology: Topology, machine_of: Mapping[str, str], visible: Mapping[str, Sequence[Gpu]], sharing: int
) -> GpuAssignment:
    """Return the real GPUs of every host, each on the host's machine; ``visible`` are those that Ray gave to the run.

    Raise MissingError for a GPU without known UUID, InputError if a machine has too few.
    """
    uuids: dict[str, tuple[str, ...]] = {}
    parents: dict[str, str] = {}
    for machine in dict.fromkeys(machine_of.values()):
        gpus = visible[machine]
        known = [gpu.uuid for gpu in gpus if gpu.uuid is not None]
        if len(known) < len(gpus):
            raise MissingError(f"machine {machine}: hosts get their GPUs by UUID: pip install 'wanbed[gpu]' there")
        own = {gpu.uuid: gpu.parent for gpu in gpus if gpu.uuid is not None and gpu.parent is not None}
        assigned = assign_gpus(_only(topology, machine_of, machine), known, sharing=sharing, parents=own)
        uuids.update(assigned.uuids)
        parents.update(own)
    return GpuAssignment({host.name: uuids[host.name] for host in topology.hosts}, parents)


def _only(topology: Topology, machine_of: Mapping[str, str], machine: str) -> Topology:
    """Return the topology without the hosts of other machines."""
    datacenters = (
        replace(each, hosts=tuple(host for host in each.hosts if machine_of[host.name] == machine))
        for each in topology.datacenters
    )
    return replace(topology, datacenters=tuple(datacenters))
