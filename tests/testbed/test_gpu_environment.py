"""The GPUs that programs on a testbed's hosts see."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from wanbed.testbed.gpus.gpu_assignment import GpuAssignment
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.testbed import Testbed

TOPOLOGY = resolve_topology(
    TopologySpec.model_validate({"datacenters": [{"name": "east", "hosts": 2, "gpus_per_host": 2}]})
)
GPUS = GpuAssignment({"east-0": ("GPU-0", "GPU-1"), "east-1": ("GPU-2", "GPU-3")})


class Node:
    """A host that records the environment of the programs started there."""

    def __init__(self) -> None:
        self.environments: list[Mapping[str, str]] = []

    def spawn(self, argv: list[str], *, env: Mapping[str, str], **popen: Any) -> Any:
        self.environments.append(env)
        return SimpleNamespace(argv=argv, **popen)

    def start_module(self, module: str, arguments: list[str], output: int, environment: Mapping[str, str]) -> Any:
        self.environments.append(environment)
        return SimpleNamespace(argv=[module, *arguments])


def bed_with(gpus: GpuAssignment | None) -> tuple[Testbed, Node]:
    class Unbuilt(Testbed):
        def __init__(self, topology: Topology, node: Node) -> None:
            self.topology = topology
            self.gpus = gpus
            self._hosts = {host.name: node for host in topology.hosts}  # type: ignore[misc]

    node = Node()
    return Unbuilt(TOPOLOGY, node), node


@pytest.mark.parametrize(("gpu", "seen"), [(None, "GPU-2,GPU-3"), (0, "GPU-2"), (1, "GPU-3")])
def test_a_program_sees_its_hosts_gpus_or_its_own(gpu: int | None, seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4")
    testbed, node = bed_with(GPUS)
    testbed.spawn("east-1", ["train"], gpu=gpu)
    testbed.spawn("east-1", ["train"], gpu=gpu, env={"PATH": "/bin"})
    assert node.environments[0]["CUDA_VISIBLE_DEVICES"] == seen
    assert node.environments[1] == {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": seen}


@pytest.mark.parametrize(("gpu", "seen"), [(None, "GPU-2,GPU-3"), (0, "GPU-2"), (1, "GPU-3")])
def test_a_rank_sees_its_hosts_gpus_or_its_own(gpu: int | None, seen: str) -> None:
    testbed, node = bed_with(GPUS)
    testbed.start_module("east-1", "wanbed.workloads.rank", ["plan.json"], 1, gpu=gpu)
    assert node.environments == [{"CUDA_VISIBLE_DEVICES": seen}]


def test_without_an_assignment_a_rank_is_given_nothing() -> None:
    testbed, node = bed_with(None)
    testbed.start_module("east-1", "wanbed.workloads.rank", ["plan.json"], 1, gpu=1)
    assert node.environments == [{}]


def test_without_an_assignment_everything_is_as_it_is_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    testbed, node = bed_with(None)
    testbed.spawn("east-1", ["train"], gpu=1)
    assert node.environments[0]["CUDA_VISIBLE_DEVICES"] == "3"
