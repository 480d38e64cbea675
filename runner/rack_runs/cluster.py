"""Connect this process to a running Ray cluster as its driver, and list the machines of the cluster.

It connects quietly, and only where strangers cannot run code. The driver runs on a machine of the cluster; one that was
started with ``--num-cpus=0`` drives and carries no hosts.
"""

import json
import logging
import os
import platform
import re
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from wanbed.ground.errors import InputError, MissingError, one_line, shortened
from wanbed.module_process import module_command
from wanbed.results.text import list_text
from wanbed.runner.runs.run_folder import Log

NAMESPACE = "wanbed"
"""The namespace of Ray in which actors of all runs are, so that one finds those of another."""

WITHOUT_AUTH = "WANBED_RACK_WITHOUT_AUTH"
"""The environment variable that, as 1, allows a cluster that anybody who reaches it can run code on."""

DATACENTER_LABEL = "wanbed.datacenter"
"""The label of a Ray node that names the datacenter whose hosts its machine carries."""

GATEWAY_LABEL = "wanbed.gateway"
"""The label of a Ray node that names the datacenter whose trunks go through its machine, which carries no hosts."""

INSTALL = "Ray is not installed: pip install 'wanbed[rack]'"

_AUTH_MODE = "RAY_AUTH_MODE"

_PATIENCE_S = 3.0

_PROBE_LIMIT_S = 60.0

_TWICE_LIMIT_S = 60.0
"""Ray takes 15 s to notice the end of a node by default."""

_LOOK_INTERVAL_S = 0.2


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process drives. ``authenticated`` is whether it lets in nobody without its token."""

    address: str
    authenticated: bool
    ray_version: str

    def document(self) -> dict[str, Any]:
        """Return the cluster in plain JSON types, as in manifests."""
        return {"address": self.address, "token_authentication": self.authenticated, "ray": self.ray_version}


@contextmanager
def connected(address: str, *, sources: Path | None = None) -> Iterator[Cluster]:
    """Connect to the cluster whose head listens at ``address`` (HOST:PORT), for the duration of the block.

    Machines run wanbed from the folder ``sources``, which each of them is sent; without one, as it is installed there.
    Raise InputError for a text that is no address, and MissingError if Ray is not installed, nobody
    answers, the cluster refuses this process's token or has none, or runs another Ray or Python.
    """
    authenticated = _check(address)
    import ray  # noqa: PLC0415

    # Ray takes SIGTERM for itself, to end the process at once; the command has things to take down.
    handler = signal.getsignal(signal.SIGTERM)
    # Ray would print what happens to its processes to standard output; its debugger silences that in the same way.
    ray._private.worker._worker_logs_enabled = False
    try:
        ray.init(
            address=address,
            namespace=NAMESPACE,
            configure_logging=True,
            logging_level=logging.ERROR,
            log_to_driver=False,
            runtime_env=None if sources is None else {"working_dir": str(sources)},
        )
    except (ConnectionError, RuntimeError, ValueError) as fault:
        ray.shutdown()
        raise MissingError(f"--rack {address}: {_first_line(fault)}") from fault
    finally:
        signal.signal(signal.SIGTERM, handler)
    try:
        yield Cluster(address, authenticated, ray.__version__)
    finally:
        ray.shutdown()


def _check(address: str) -> bool:
    """Raise the errors of ``connected``. Return whether the cluster refuses those without its token."""
    host, port = _host_and_port(address)
    if find_spec("ray") is None:
        raise MissingError(INSTALL)
    allowed = os.environ.get(WITHOUT_AUTH) == "1"
    mode = os.environ.get(_AUTH_MODE, "")
    if mode.lower() != "token" and not allowed:
        raise MissingError(
            f"--rack: {_AUTH_MODE} is {mode or 'not set'}, and whoever reaches a cluster without token authentication "
            "can run code on it: `ray get-auth-token --generate` makes a token, ~/.ray/auth_token on every machine and "
            f"{_AUTH_MODE}=token wherever `ray start` and wanbed are called turn it on; {WITHOUT_AUTH}=1 goes without"
        )
    try:
        socket.create_connection((host, port), _PATIENCE_S).close()
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise MissingError(
            f"--rack {address}: nobody answers ({reason}): give HOST:PORT as `ray start --head` printed it"
        ) from None
    with_token, without = _asked(address, {}), _asked(address, {_AUTH_MODE: "disabled"})
    known, stranger = _answer(address, with_token), _answer(address, without)
    if known["refused"]:
        raise MissingError(
            f"--rack {address}: the cluster refuses this token: RAY_AUTH_TOKEN, the file RAY_AUTH_TOKEN_PATH or "
            "~/.ray/auth_token has to hold that of the cluster, and RAY_AUTH_MODE=token has to be set"
        )
    if not stranger["refused"] and not allowed:
        raise MissingError(
            f"--rack {address}: the cluster lets in everybody who reaches it: call `ray start` with {_AUTH_MODE}=token "
            f"on its machines; {WITHOUT_AUTH}=1 goes without"
        )
    _check_versions(address, known)
    return bool(stranger["refused"])


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise InputError(
            f"--rack {address!r}: give HOST:PORT of the cluster's head, as `ray start --head` printed it, like "
            "10.0.0.1:6379"
        )
    return host, int(port)


def _asked(address: str, environment: Mapping[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        module_command("wanbed.runner.rack_runs.cluster_probe", address),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, **environment},
    )


def _answer(address: str, asked: "subprocess.Popen[str]") -> dict[str, Any]:
    with asked:
        try:
            output, errors = asked.communicate(timeout=_PROBE_LIMIT_S)
        except subprocess.TimeoutExpired:
            asked.kill()
            raise MissingError(f"--rack {address}: somebody listens there, who is no Ray head") from None
    if asked.returncode == 0:
        answer: dict[str, Any] = json.loads(output)
        return answer
    last = (errors.strip().splitlines() or ["it says nothing"])[-1]
    if "AuthenticationError" in last:
        return {"refused": True}
    if "RpcError" in last:
        raise MissingError(f"--rack {address}: somebody listens there, who is no Ray head ({last})")
    raise MissingError(f"--rack {address}: the cluster could not be asked: {last}")


def _check_versions(address: str, known: Mapping[str, Any]) -> None:
    ours = {"Ray": metadata.version("ray"), "Python": platform.python_version()}
    theirs = {"Ray": known["ray"], "Python": known["python"]}
    for name, version in ours.items():
        if theirs[name] not in {None, version}:
            remedy = f"pip install ray=={theirs[name]}" if name == "Ray" else f"use Python {theirs[name]}"
            raise MissingError(
                f"--rack {address}: the cluster runs {name} {theirs[name]} and this process {version}, and Ray wants "
                f"the same everywhere: {remedy}"
            )
    if not known["node_here"]:
        raise MissingError(
            f"--rack {address}: this machine is not part of the cluster: `ray start --address={address} --num-cpus=0` "
            "makes it one that drives and carries no hosts"
        )


def _first_line(fault: BaseException) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]


@dataclass(frozen=True)
class Node:
    """A machine of the rack as Ray knows it. ``cpus`` and ``gpus`` are what Ray accounts for there.

    ``port`` is one at which Ray listens there, 0 if it is not known.
    """

    name: str
    node_id: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    cpus: float = 1
    gpus: float = 0
    port: int = 0

    @property
    def datacenter(self) -> str | None:
        """The datacenter that the machine is labelled for, None if it may carry any."""
        return self.labels.get(DATACENTER_LABEL) or None

    @property
    def gateway_of(self) -> str | None:
        """The datacenter whose gateway machine this is, None if it is none."""
        return self.labels.get(GATEWAY_LABEL) or None

    @property
    def carries_hosts(self) -> bool:
        """True if a run may use the machine: one that was started with ``--num-cpus=0`` only drives."""
        return self.cpus > 0

    @property
    def has_room(self) -> bool:
        """True if hosts may be placed on the machine."""
        return self.carries_hosts and self.gateway_of is None


def read_nodes(log: Log) -> list[Node]:
    """Return the machines that are part of the cluster now, by name. Raise what ``each_once`` raises."""
    import ray  # noqa: PLC0415

    return each_once(lambda: nodes_of(ray.nodes()), log)


def each_once(
    read: Callable[[], list[Node]],
    log: Log,
    *,
    patience_s: float = _TWICE_LIMIT_S,
    interval_s: float = _LOOK_INTERVAL_S,
) -> list[Node]:
    """Return the machines that are read, as soon as none of them is listed twice.

    A machine on which Ray has ended and was started again is listed twice until Ray has noticed the end. Raise
    MissingError for one that is listed twice for longer.
    """
    until_s, told = time.monotonic() + patience_s, False
    while twice := _twice(nodes := read()):
        if time.monotonic() > until_s:
            raise MissingError(
                f"Ray lists {list_text(twice)} twice: call `ray stop` there and `ray start` once, or give each node a "
                "--node-name of its own"
            )
        if not told:
            log(f"Ray lists {list_text(twice)} twice: waiting until it has noticed that the first node there has ended")
            told = True
        time.sleep(interval_s)
    return nodes


def _twice(nodes: Sequence[Node]) -> list[str]:
    return [name for name, count in Counter(node.name for node in nodes).items() if count > 1]


def nodes_of(listed: Sequence[Mapping[str, Any]]) -> list[Node]:
    """Return the machines that are alive among those that Ray lists, by name.

    A machine's name is the one that ``ray start`` was given, or else its hostname; its address if another machine has
    the same name. Whatever characters it was given, its name can be shown.
    """
    alive = [entry for entry in listed if entry.get("Alive")]
    names = [_given_name(entry) for entry in alive]
    shared = {name for name, count in Counter(names).items() if count > 1}
    return in_order(
        [
            Node(
                name=str(entry["NodeManagerAddress"]) if name in shared else name,
                node_id=str(entry["NodeID"]),
                address=str(entry["NodeManagerAddress"]),
                labels=dict(entry.get("Labels") or {}),
                cpus=float(entry.get("Resources", {}).get("CPU", 0)),
                gpus=float(entry.get("Resources", {}).get("GPU", 0)),
                port=int(entry.get("NodeManagerPort") or 0),
            )
            for name, entry in zip(names, alive, strict=True)
        ]
    )


def _given_name(entry: Mapping[str, Any]) -> str:
    given, address = entry.get("NodeName"), entry["NodeManagerAddress"]
    name = given if given not in {None, "", address} else entry.get("NodeManagerHostname") or address
    return shortened(one_line(str(name)))


def in_order(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes by name, with numbers in names by their value, so that ``rack10`` follows ``rack9``."""
    return sorted(nodes, key=lambda node: (_natural(node.name), _natural(node.address), node.node_id))


def _natural(text: str) -> tuple[tuple[int, int, str], ...]:
    parts = re.split(r"(\d+)", text)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)
