"""A Ray cluster of its own for tests: a head on this machine, and nodes on machines that namespaces play.

It wants root, takes about ten seconds to start and 300 MB a node, and ends with the process that started it. Its head
has no CPUs, so that work goes to the nodes; drivers run beside the head, as on a real rack. Token authentication is on.

The tests of a module share one by the fixture ``two_nodes``, which is imported where it is used.
"""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests.support.ray.cluster_head import ClusterHead, cluster_head, ray_start
from tests.support.ray.machine_namespaces import NamespaceMachine, Switch, switch


@dataclass(frozen=True)
class RayNode:
    """A node to start: the name of its machine, its labels, and what it says to have.

    The machine of a ``lasting`` one goes on when Ray has ended there, as a real one does.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    cpus: int = 1
    resources: Mapping[str, float] = field(default_factory=dict)
    lasting: bool = False

    def options(self) -> list[str]:
        """Return the node's options of ``ray start``."""
        labels = ",".join(f"{name}={value}" for name, value in self.labels.items())
        options = [f"--num-cpus={self.cpus}", *([f"--labels={labels}"] if labels else [])]
        return [*options, f"--resources={json.dumps(self.resources)}"] if self.resources else options


class RayCluster(ClusterHead):
    """A cluster that runs; ``machines`` are its nodes', by name."""

    def __init__(self, head: ClusterHead, network: Switch) -> None:
        super().__init__(head.address, head.environment, head.folder, ())
        self.machines: dict[str, NamespaceMachine] = {}
        self._switch = network

    def add(self, *nodes: RayNode) -> None:
        """Start more nodes, all at once, and wait until they have joined."""
        self.machines.update({node.name: self._started(node) for node in nodes})
        alive = sum(machine.first.poll() is None for machine in self.machines.values())
        self.wait_for(1 + alive, self._lacks_a_machine, self._logs)

    def start_again(self, node: RayNode) -> None:
        """Start Ray on a lasting machine where it has ended, and wait until it has joined again."""
        machine = self.machines[node.name]
        command = [word.replace("{address}", machine.address) for word in self._joining(node)]
        with (self.folder / f"{node.name}-again.log").open("ab") as log:
            # It ends with the machine, whose first process is the first of its process namespace.
            subprocess.Popen(
                machine.inside(*command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
            )
        self.wait_for(1 + len(self.machines), self._lacks_a_machine, self._logs)

    def _started(self, node: RayNode) -> NamespaceMachine:
        command = self._joining(node)
        if node.lasting:
            command = ["sh", "-c", f"{shlex.join(command)}; exec sleep infinity"]
        return self._switch.machine(node.name, command, self.folder / f"{node.name}.log", self.environment)

    def _joining(self, node: RayNode) -> list[str]:
        joining = [f"--address={self.address}", "--node-ip-address={address}", "--temp-dir=/run/ray"]
        return [*ray_start(), *joining, *node.options()]

    def _lacks_a_machine(self) -> bool:
        return any(machine.first.poll() not in {None, -signal.SIGKILL} for machine in self.machines.values())

    def _logs(self) -> str:
        return "\n".join(f"{log.name}:\n{log.read_text()}" for log in sorted(self.folder.glob("*.log")))


@contextmanager
def ray_cluster(*nodes: RayNode, head_cpus: int = 0, **head_variables: str) -> Iterator[RayCluster]:
    """Start a cluster of these nodes, all at once, and yield it when all have joined.

    ``head_variables`` are further environment variables of the head, and of the nodes.
    """
    with switch() as network, cluster_head(network.address, cpus=head_cpus, **head_variables) as head:
        cluster = RayCluster(head, network)
        cluster.add(*nodes)
        yield cluster


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[RayCluster]:
    """Yield a cluster of a node in each of two datacenters, ``east`` and ``west``."""
    nodes = (RayNode(name, {"wanbed.datacenter": name}) for name in ("east", "west"))
    with ray_cluster(*nodes) as cluster:
        yield cluster
