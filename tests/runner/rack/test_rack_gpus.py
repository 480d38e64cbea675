from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.strict_model import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.rack.host_placement import Node
from wanbed.runner.rack.point_placement import check_memory, gpus_of, place_point, used_nodes
from wanbed.runner.rack.rack_gpus import assigned_gpus, gpu_sharing
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.testbed.gpus.gpu_reader import GpuMemory
from wanbed.testbed.gpus.gpus import Gpu
from wanbed.testbed.kernel.missing import MissingError

TORCH = {"kind": "torch"}
MODEL = {"hidden": 64, "context": 16, "heads": 4, "vocabulary": 128, "layers": 8}


def point_of(compute: dict[str, Any], model: Any = "gpt-a", hosts: int = 1, gpus: int = 1) -> SweepPoint:
    datacenters = [{"name": name, "hosts": hosts, "gpus_per_host": gpus} for name in ("east", "west")]
    document = {
        "name": "x",
        "topology": {"datacenters": datacenters, "wan": {"latency": "5ms"}},
        "compute": compute,
        "engine": "rack",
    }
    (point,) = parse_experiment({**document, "model": model}, "x.yaml", Path()).points()
    return point


def nodes(*gpus: float, cpus: float = 4) -> list[Node]:
    return [Node(f"rack{place}", f"id{place}", f"10.0.0.{place}", {}, cpus, count) for place, count in enumerate(gpus)]


def gpu(name: str) -> Gpu:
    return Gpu("H200", "570", name)


def test_what_waits_for_the_clock_takes_no_gpu() -> None:
    assert gpu_sharing(point_of({}), nodes(8, 8)) is None


def test_what_computes_takes_gpus_where_ray_counts_some() -> None:
    assert gpu_sharing(point_of(TORCH, MODEL), nodes(1, 1)) == 1
    assert gpu_sharing(point_of({**TORCH, "sharing": 2}, MODEL), nodes(1, 1)) == 2
    assert gpu_sharing(point_of(TORCH, MODEL), nodes(0, 0)) is None
    assert gpu_sharing(point_of({**TORCH, "device": "cpu"}, MODEL), nodes(1, 1)) is None


def test_a_machine_that_only_drives_lends_no_gpu() -> None:
    cuda = point_of({**TORCH, "device": "cuda"}, MODEL)
    with pytest.raises(MissingError, match="Ray counts no GPU on the rack's machines: give `ray start` --num-gpus"):
        gpu_sharing(cuda, nodes(8, cpus=0))


def test_a_run_takes_the_most_gpus_that_any_of_its_points_takes_of_a_machine() -> None:
    small, large = (point_of(TORCH, MODEL, gpus=count) for count in (1, 2))
    rack = nodes(4, 4, 4)
    used, gpus = used_nodes(rack, [place_point(point, rack, 1) for point in (small, large)])
    assert ([node.name for node in used], gpus) == (["rack0", "rack1"], {"rack0": 2, "rack1": 2})


def test_hosts_get_gpus_of_their_own_machine() -> None:
    topology = point_of(TORCH, MODEL, hosts=2).topology
    machine_of = {"east-0": "a", "east-1": "a", "west-0": "b", "west-1": "c"}
    visible = {"a": [gpu("A1"), gpu("A2")], "b": [gpu("B1")], "c": [gpu("C1")]}
    assert assigned_gpus(topology, machine_of, visible, 1).uuids == {
        "east-0": ("A1",),
        "east-1": ("A2",),
        "west-0": ("B1",),
        "west-1": ("C1",),
    }
    assert assigned_gpus(topology, machine_of, {**visible, "a": [gpu("A1")]}, 2).most_sharers == 2
    with pytest.raises(InputError, match=r"compute\.sharing: the hosts have 2 GPUs and this machine 1 GPU"):
        assigned_gpus(topology, machine_of, {**visible, "a": [gpu("A1")]}, 1)


def test_a_gpu_without_uuid_cannot_be_given_to_a_host() -> None:
    topology = point_of(TORCH, MODEL).topology
    with pytest.raises(MissingError, match="machine a: hosts get their GPUs by UUID"):
        assigned_gpus(topology, {"east-0": "a", "west-0": "b"}, {"a": [Gpu("H200", "570")], "b": [gpu("B")]}, 1)


class GpuMachine:
    """A machine with one GPU, which it names after itself; ``free_bytes`` is None where NVML says nothing of it."""

    def __init__(self, name: str, free_bytes: int | None) -> None:
        self.name = name
        self._free_bytes = free_bytes

    def gpus(self) -> list[Gpu]:
        return [gpu(f"GPU-of-{self.name}")]

    def call(self, method: str, uuids: list[str]) -> dict[str, GpuMemory]:
        assert method == "gpu_memories"
        return {} if self._free_bytes is None else {uuid: GpuMemory("H200", 2**37, self._free_bytes) for uuid in uuids}

    def start_call(self, method: str, *arguments: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("east_bytes", [2**36, None])
def test_what_fits_or_is_not_known_is_let_through(east_bytes: int | None) -> None:
    placed = place_point(point_of({**TORCH, "device": "cuda"}, MODEL), nodes(1, 1), 1)
    machines = {"rack0": GpuMachine("rack0", east_bytes), "rack1": GpuMachine("rack1", 2**36)}
    check_memory(placed, machines)
    assigned = gpus_of(placed, machines)
    assert assigned is not None
    assert dict(assigned.uuids) == {"east-0": ("GPU-of-rack0",), "west-0": ("GPU-of-rack1",)}


def test_a_gpu_of_a_machine_that_others_fill_is_named_before_the_run() -> None:
    placed = place_point(point_of({**TORCH, "device": "cuda"}, MODEL), nodes(1, 1), 1)
    machines = {"rack0": GpuMachine("rack0", 2**36), "rack1": GpuMachine("rack1", 2**20)}
    with pytest.raises(InputError, match=r"H200 \(GPU-of-rack1\) of rack1"):
        check_memory(placed, machines)
