"""A Ray cluster whose machines are User-Mode Linux guests, each with its own kernel, card and Ray node.

The head is on this machine, in the network of the guests' wire; so are the processes that drive the cluster. It wants
root, takes about 40 seconds to start on two cores and 2 GiB a guest, and ends with the process that started it.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tests.support.rack.guests.guest_commands import GuestCommand
from tests.support.rack.guests.guest_machine import GuestMachine
from tests.support.rack.guests.guest_wire import OUTSIDE_ADDRESS, GuestWire
from tests.support.ray.cluster_head import ClusterHead, cluster_head, ray_start
from tests.support.ray.ray_cluster import RayNode
from tests.support.until import until_within

_ATTEMPTS, _JOIN_S = 3, 90.0
_CONSOLE_CHARACTERS = 2000
_PORTS = [
    f"--{name}-port={port}"
    for port, name in enumerate(
        ("runtime-env-agent", "dashboard-agent-listen", "dashboard-agent-grpc", "metrics-export"), start=9001
    )
]
"""A node with these ports given does not wait until its helpers, slow to start on a guest, have found their own."""
_PREFERRED = ["nice", "--adjustment=-20"]
"""Head and drivers are as quick as the guests, which would else starve them on a busy computer."""
_PATIENT = {"RAY_agent_register_timeout_ms": "120000"}


class GuestCluster(ClusterHead):
    """A cluster that runs; ``machines`` are its nodes', by the nodes' names."""

    def __init__(self, head: ClusterHead, wire: GuestWire, up: ExitStack, memory_mib: int) -> None:
        super().__init__(head.address, head.environment, head.folder, wire.command(_PREFERRED))
        self.machines: dict[str, GuestMachine] = {}
        self._wire, self._up, self._memory_mib = wire, up, memory_mib
        self._joining: dict[str, GuestCommand] = {}

    def boot(self, *nodes: RayNode) -> None:
        """Start machines for these nodes, without waiting for them. One of a known name takes the old one's place."""
        for node in nodes:
            number = list(self.machines).index(node.name) if node.name in self.machines else len(self.machines)
            machine = GuestMachine(self._wire, number, name=node.name, memory_mib=self._memory_mib)
            self.machines[node.name] = self._up.enter_context(machine)

    def join(self, *nodes: RayNode) -> None:
        """Start Ray on the machines of these nodes, one after the other, and wait until the cluster knows all."""
        for node in nodes:
            self._joining[node.name] = self._joined(node)
        self.wait_for(1 + len(self._joining), self._lacks_a_machine, self.logs)

    def _joined(self, node: RayNode) -> GuestCommand:
        """Start Ray on a machine. On a busy computer it may miss the 30 s that Ray gives it at a time."""
        machine = self.machines[node.name]
        place = [f"--address={self.address}", f"--node-ip-address={machine.address}", "--temp-dir=/run/ray"]
        for _ in range(_ATTEMPTS):
            command = machine.start([*ray_start(), *place, *_PORTS, *node.options()], {**self.environment, **_PATIENT})
            until_within(_JOIN_S, lambda: command.ended or "Ray runtime started" in command.output())  # noqa: B023
            if not command.ended:
                return command
        raise RuntimeError(f"{node.name} does not join: {command.output()}")

    def power_off(self, name: str) -> None:
        """End a machine at once, with everything that runs on it."""
        self.machines[name].power_off()
        del self._joining[name]

    def logs(self) -> str:
        """Return what each machine's Ray and the end of what its kernel have printed."""
        return "\n".join(
            f"{name}:\n{command.output()}\n{self.machines[name].console()[-_CONSOLE_CHARACTERS:]}"
            for name, command in self._joining.items()
        )

    def _lacks_a_machine(self) -> bool:
        return any(command.ended for command in self._joining.values())


@contextmanager
def guest_cluster(*nodes: RayNode, memory_mib: int = 2048) -> Iterator[GuestCluster]:
    """Start a cluster of these nodes, all at once, and yield it when all have joined."""
    with ExitStack() as up:
        wire = up.enter_context(GuestWire())
        head = up.enter_context(cluster_head(OUTSIDE_ADDRESS, enter=wire.command(_PREFERRED)))
        cluster = GuestCluster(head, wire, up, memory_mib)
        cluster.boot(*nodes)
        cluster.join(*nodes)
        yield cluster


def nodes_of(datacenters: Sequence[str]) -> tuple[RayNode, ...]:
    """Return a node for each of these, named after its datacenter and its number there: ``east0``, ``east1`` ..."""
    names = [f"{each}{datacenters[:index].count(each)}" for index, each in enumerate(datacenters)]
    return tuple(
        RayNode(name, {"wanbed.datacenter": datacenter}) for name, datacenter in zip(names, datacenters, strict=True)
    )
