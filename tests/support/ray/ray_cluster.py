"""A Ray cluster of its own for tests: a head on this machine, and nodes on machines that namespaces play.

It wants root, takes about ten seconds to start and 300 MB a node, and ends with the process that started it. Its head
has no CPUs, so that work goes to the nodes; drivers run beside the head, as on a real rack. Token authentication is on.
"""

import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.ray.machine_namespaces import NamespaceMachine, Switch, switch
from tests.support.until import until_within
from wanbed.own_modules import module_command

_ROOT = Path(__file__).resolve().parents[3]
_PATIENCE_S = 90
_OBJECT_STORE = 80_000_000
_SMALL = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_prestart_worker_first_driver": "0",
    "PYTHONPATH": str(_ROOT),
}
_PORTS = range(20_000, 30_000)
"""Ports for a head: neither of Ray's workers nor ones that the kernel gives out."""

_UNTIL_JOINED = """
import sys, time, ray
ray.init(sys.argv[1], log_to_driver=False, logging_level="error")
wanted = int(sys.argv[2])
while True:
    alive = [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]
    if len(alive) >= wanted and len(set(alive)) == len(alive):
        break
    time.sleep(0.05)
"""


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


class RayCluster:
    """A cluster that runs.

    ``address`` is the head's, ``environment`` what a process needs to be let in; ``machines`` are the nodes', by name.
    """

    def __init__(self, address: str, environment: Mapping[str, str], folder: Path, network: Switch) -> None:
        self.address, self.environment = address, environment
        self.machines: dict[str, NamespaceMachine] = {}
        self._folder, self._switch = folder, network

    def start_driver(self, *argv: str, **options: object) -> "subprocess.Popen[str]":
        """Start a Python program with these arguments (``-m module``, ``-c code`` ...) beside the head."""
        environment = {**os.environ, **self.environment}
        command = ["setpriv", "--pdeathsig", "KILL", sys.executable, *argv]
        return subprocess.Popen(command, text=True, env=environment, **options)  # type: ignore[call-overload, no-any-return]

    def run_driver(self, *argv: str, timeout_s: float = 120) -> "subprocess.CompletedProcess[str]":
        """Run a Python program with these arguments beside the head, to its end."""
        driver = self.start_driver(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            output, errors = driver.communicate(timeout=timeout_s)
        finally:
            driver.kill()
            driver.wait()
        return subprocess.CompletedProcess(argv, driver.returncode, output, errors)

    def add(self, *nodes: RayNode) -> None:
        """Start more nodes, all at once, and wait until they have joined."""
        self.machines.update({node.name: self._started(node) for node in nodes})
        self.wait_for(1 + sum(machine.first.poll() is None for machine in self.machines.values()))

    def _started(self, node: RayNode) -> NamespaceMachine:
        command = self._joining(node)
        if node.lasting:
            command = ["sh", "-c", f"{shlex.join(command)}; exec sleep infinity"]
        return self._switch.machine(node.name, command, self._folder / f"{node.name}.log", self.environment)

    def start_again(self, node: RayNode) -> None:
        """Start Ray on a lasting machine where it has ended, and wait until the cluster is as it was before."""
        machine = self.machines[node.name]
        command = [word.replace("{address}", machine.address) for word in self._joining(node)]
        with (self._folder / f"{node.name}-again.log").open("ab") as log:
            # It ends with the machine, whose first process is the first of its process namespace.
            subprocess.Popen(
                machine.inside(*command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
            )
        self.wait_for(1 + len(self.machines))

    def _joining(self, node: RayNode) -> list[str]:
        joining = [f"--address={self.address}", "--node-ip-address={address}", f"--num-cpus={node.cpus}"]
        saying = [f"--labels={_pairs(node.labels)}"] if node.labels else []
        saying += [f"--resources={json.dumps(node.resources)}"] if node.resources else []
        return [*_ray_start(), *joining, *saying, "--temp-dir=/run/ray"]

    def wait_for(self, nodes: int) -> None:
        """Wait until Ray counts so many nodes, each at an address of its own: one that has died is counted for long."""
        with self.start_driver("-c", _UNTIL_JOINED, self.address, str(nodes), stderr=subprocess.DEVNULL) as driver:
            try:
                until_within(_PATIENCE_S, lambda: driver.poll() is not None or self._lacks_a_machine())
                if driver.poll() != 0:
                    raise RuntimeError(f"the cluster did not start:\n{self._logs()}")
            finally:
                driver.kill()

    def _lacks_a_machine(self) -> bool:
        return any(machine.first.poll() not in {None, -signal.SIGKILL} for machine in self.machines.values())

    def _logs(self) -> str:
        return "\n".join(f"{log.name}:\n{log.read_text()}" for log in sorted(self._folder.glob("*.log")))


@contextmanager
def ray_cluster(*nodes: RayNode, head_cpus: int = 0, **head_variables: str) -> Iterator[RayCluster]:
    """Start a cluster of these nodes, all at once, and yield it when all have joined.

    ``head_variables`` are further environment variables of the head, and of the nodes.
    """
    with switch() as network, ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="wb"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        address = f"{network.address}:{_free_port()}"
        environment = {**_SMALL, "RAY_AUTH_TOKEN": secrets.token_hex(32), **head_variables}
        stack.enter_context(_head(address, head_cpus, folder, environment))
        cluster = RayCluster(address, environment, folder, network)
        cluster.add(*nodes)
        yield cluster


@contextmanager
def _head(address: str, cpus: int, folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    host, port = address.split(":")
    command = [*_ray_start(), "--head", f"--node-ip-address={host}", f"--port={port}", f"--num-cpus={cpus}"]
    command += ["--include-dashboard=false", f"--temp-dir={folder}"]
    with (folder / "head.log").open("wb") as output:
        warden = subprocess.Popen(
            module_command("tests.support.ray.warden", str(folder), *command),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    try:
        yield
    finally:
        assert warden.stdin is not None
        warden.stdin.close()
        warden.wait()


def _ray_start() -> list[str]:
    small = ["--disable-usage-stats", f"--object-store-memory={_OBJECT_STORE}", "--include-log-monitor=false"]
    return [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *small]


def _pairs(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())


def _free_port() -> int:
    for port in secrets.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")
