"""Run programs on the hosts of a testbed that another process has brought up."""

import json
import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Unpack

from wanbed.ground.errors import InputError
from wanbed.ground.files import write_whole
from wanbed.testbed.claims.cleaning import end_processes
from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.claims.registry import STATE_ROOT, claims
from wanbed.testbed.claims.supervisor import Supervisor
from wanbed.testbed.hosts.host import SpawnOptions
from wanbed.testbed.network.topology import Topology

_HOSTS_RECORD = "hosts.json"
VISIT = "WANBED_VISIT"
"""The variable whose value identifies the ``JoinedTestbed`` through which a program was started."""


def enter_host(pid: int, marker: str, argv: list[str], **popen: Unpack[SpawnOptions]) -> subprocess.Popen[Any]:
    """Start a program in the namespaces of process ``pid``, with the testbed's identifier."""
    enter, popen["env"] = entering(pid, marker, argv, popen.get("env"), popen.pop("cwd", "/"))
    return subprocess.Popen(enter, **popen)


def entering(
    pid: int, marker: str, argv: list[str], environment: Mapping[str, str] | None = None, folder: str = "/"
) -> tuple[list[str], dict[str, str]]:
    """Return command line and environment for ``enter_host``, based on ``environment`` or else on this process's.

    The program enters the network, mount and UTS namespaces of ``pid``, and its user namespace if that is another one:
    only the user whose namespace it is may.
    """
    user = [] if _same_user_namespace(pid) else ["--user", "--preserve-credentials"]
    enter = ["nsenter", f"--target={pid}", *user, "--net", "--mount", "--uts", f"--wdns={folder}", "--", *argv]
    return enter, {**(environment or os.environ), MARKER: marker}


def _same_user_namespace(pid: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/user") == os.readlink("/proc/self/ns/user")
    except OSError:
        # The process has gone, or belongs to somebody else: nsenter reports which.
        return True


@dataclass(frozen=True)
class JoinedTestbed:
    """A testbed that is up. ``host_pids`` has the PID of a process in each host's namespaces.

    ``environments`` has, for each host, the variables that its programs have in addition to this process's environment.
    """

    identifier: str
    host_pids: dict[str, int]
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    visit: str = field(default_factory=lambda: f"wj-{secrets.token_hex(6)}", compare=False)
    """Identifies, in their environment, the programs that are started through this object."""

    @contextmanager
    def programs_end_here(self) -> Iterator[None]:
        """End all programs started through this object with the block, or with this process, even if it is killed."""
        with Supervisor(self.visit, VISIT) as supervisor:
            try:
                yield
            finally:
                end_processes(self.visit, VISIT)
                supervisor.dismiss()

    def spawn(self, host: str, argv: list[str], **popen: Unpack[SpawnOptions]) -> subprocess.Popen[Any]:
        """Start any program on a host. It ends with the testbed at the latest.

        Raise InputError for a host that the testbed does not have: the experiment file may have changed since.
        """
        if host not in self.host_pids:
            raise InputError(
                f"host {host!r} is not on the testbed {self.identifier}, which is up with {', '.join(self.host_pids)}: "
                "end that one, or run with --fresh"
            )
        popen["env"] = {**(popen.get("env") or os.environ), **self.environments.get(host, {}), VISIT: self.visit}
        return enter_host(self.host_pids[host], self.identifier, argv, **popen)


def _network_fingerprint(topology: Topology) -> str:
    """Return a text that is equal for two topologies if and only if they describe the same network."""
    return sha256(repr(topology).encode()).hexdigest()


def record_hosts(
    folder: Path,
    topology: Topology,
    host_pids: dict[str, int],
    environments: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Record the hosts of the testbed of this folder, atomically, so that other processes can join it."""
    record = {"network": _network_fingerprint(topology), "hosts": host_pids, "environments": dict(environments or {})}
    write_whole(folder / _HOSTS_RECORD, json.dumps(record))


def join_testbed(source: str, topology: Topology, root: Path = STATE_ROOT) -> JoinedTestbed | None:
    """Return the testbed that a living process has brought up for ``source`` and exactly this network, or None.

    If there are several, return the latest.
    """
    joined = None
    for claim in sorted(claims(root), key=lambda claim: claim.record.created):
        hosts = claim.folder / _HOSTS_RECORD
        if claim.record.source == source and claim.record.owner_alive() and hosts.is_file():
            record = json.loads(hosts.read_text())
            if record["network"] == _network_fingerprint(topology):
                joined = JoinedTestbed(claim.record.identifier, record["hosts"], record["environments"])
    return joined
