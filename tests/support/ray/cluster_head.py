"""The head of a Ray cluster of its own for tests, on this machine, and the processes that drive the cluster beside it.

It has no CPUs, so that work goes to the nodes. Token authentication is on. It ends with the process that started it.
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.until import until_within
from wanbed.module_process import module_command

_ROOT = Path(__file__).resolve().parents[3]
_PATIENCE_S = 240
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
import socket, sys, time, ray
ray.init(sys.argv[1], log_to_driver=False, logging_level="error")

def answers(node):
    # Ray calls a node alive until it has noticed its end.
    try:
        socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), 5).close()
    except OSError:
        return False
    return node["Alive"]

while sum(map(answers, ray.nodes())) < int(sys.argv[2]):
    time.sleep(0.05)
"""


class ClusterHead:
    """A head that runs.

    ``address`` is where it listens, ``environment`` what a process needs to be let in. ``folder`` is for logs of nodes.
    ``enter`` begins a command line that runs a program on the head's network.
    """

    def __init__(self, address: str, environment: Mapping[str, str], folder: Path, enter: Sequence[str]) -> None:
        self.address, self.environment, self.folder = address, environment, folder
        self._enter = enter

    def start_driver(self, *argv: str, **options: object) -> "subprocess.Popen[str]":
        """Start a Python program with these arguments (``-m module``, ``-c code`` ...) beside the head."""
        environment = {**os.environ, **self.environment}
        command = [*self._enter, "setpriv", "--pdeathsig", "KILL", sys.executable, *argv]
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

    def wait_for(self, nodes: int, failed: Callable[[], bool], logs: Callable[[], str]) -> None:
        """Wait until so many nodes have joined, the head's own among them.

        Raise RuntimeError with ``logs`` if the head does not answer, or as soon as a node has ``failed``.
        """
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with self.start_driver("-c", _UNTIL_JOINED, self.address, str(nodes), **quiet) as driver:
            try:
                until_within(_PATIENCE_S, lambda: driver.poll() is not None or failed())
                if driver.poll() != 0:
                    raise RuntimeError(f"the cluster did not start:\n{logs()}\nhead: {self._log()}")
            finally:
                driver.kill()

    def _log(self) -> str:
        return (self.folder / "head.log").read_text()


@contextmanager
def cluster_head(host: str, *, cpus: int = 0, enter: Sequence[str] = (), **variables: str) -> Iterator[ClusterHead]:
    """Start a head that listens at this address of the network that ``enter`` leads to.

    ``variables`` are further environment variables of the head, and of the nodes.
    """
    folder = Path(tempfile.mkdtemp(prefix="wb"))
    port = _free_port()
    environment = {**_SMALL, "RAY_AUTH_TOKEN": secrets.token_hex(32), **variables}
    command = [*ray_start(), "--head", f"--node-ip-address={host}", f"--port={port}", f"--num-cpus={cpus}"]
    command += ["--include-dashboard=false", f"--temp-dir={folder}"]
    with (folder / "head.log").open("wb") as output:
        warden = subprocess.Popen(
            [*enter, *module_command("tests.support.ray.warden", str(folder), *command)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    try:
        yield ClusterHead(f"{host}:{port}", environment, folder, enter)
    finally:
        assert warden.stdin is not None
        warden.stdin.close()
        warden.wait()
        shutil.rmtree(folder, ignore_errors=True)


def ray_start() -> list[str]:
    """Return how the command line of a node begins."""
    small = ["--disable-usage-stats", f"--object-store-memory={_OBJECT_STORE}", "--include-log-monitor=false"]
    return [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *small]


def _free_port() -> int:
    for port in secrets.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")
