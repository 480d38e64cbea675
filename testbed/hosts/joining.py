"""Run programs on a testbed that another process holds up."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Unpack

from ground.atomic_write import write_whole
from ground.strict_model import InputError
from testbed.claims.registry import MARKER, STATE_ROOT, claims
from testbed.hosts.host import SpawnOptions
from testbed.network.topology import Topology

HOSTS_RECORD = "hosts.json"


def enter_host(pid: int, marker: str, argv: list[str], **popen: Unpack[SpawnOptions]) -> subprocess.Popen[Any]:
    """Start a program in the network, mount and UTS namespaces of process ``pid``, bearing the testbed's identifier."""
    enter, popen["env"] = entering(pid, marker, argv, popen.get("env"))
    return subprocess.Popen(enter, **popen)


def entering(
    pid: int, marker: str, argv: list[str], environment: Mapping[str, str] | None = None
) -> tuple[list[str], dict[str, str]]:
    """Return the program and the environment to start for that; this process's environment unless one is given."""
    enter = ["nsenter", f"--target={pid}", "--net", "--mount", "--uts", "--", *argv]
    return enter, {**(environment or os.environ), MARKER: marker}


@dataclass(frozen=True)
class JoinedTestbed:
    """A testbed that is up; ``host_pids`` holds for each host a process that is in its namespaces.

    ``environments`` holds what programs on a host have in their environment beyond this process's.
    """

    identifier: str
    host_pids: dict[str, int]
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def spawn(self, host: str, argv: list[str], **popen: Unpack[SpawnOptions]) -> subprocess.Popen[Any]:
        """Start any program on a host. It ends with the testbed at the latest.

        Raises InputError for a host that the testbed does not have: its file may have changed since.
        """
        if host not in self.host_pids:
            raise InputError(
                f"host {host!r} is not on the testbed {self.identifier}, which is up with {', '.join(self.host_pids)}: "
                "end that one, or run with --fresh"
            )
        popen["env"] = {**(popen.get("env") or os.environ), **self.environments.get(host, {})}
        return enter_host(self.host_pids[host], self.identifier, argv, **popen)


def network_fingerprint(topology: Topology) -> str:
    """Return a text that is the same for two topologies exactly if they are the same network."""
    return sha256(repr(topology).encode()).hexdigest()


def record_hosts(
    folder: Path,
    topology: Topology,
    host_pids: dict[str, int],
    environments: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Let others join the testbed of this folder: all its hosts at once, or none."""
    record = {"network": network_fingerprint(topology), "hosts": host_pids, "environments": dict(environments or {})}
    write_whole(folder / HOSTS_RECORD, json.dumps(record))


def join_testbed(source: str, topology: Topology, root: Path = STATE_ROOT) -> JoinedTestbed | None:
    """Return the testbed that a living process has brought up for ``source`` and for this very network, or None.

    The latest if there are several.
    """
    joined = None
    for claim in sorted(claims(root), key=lambda claim: claim.record.created):
        hosts = claim.folder / HOSTS_RECORD
        if claim.record.source == source and claim.record.owner_alive() and hosts.is_file():
            record = json.loads(hosts.read_text())
            if record["network"] == network_fingerprint(topology):
                joined = JoinedTestbed(claim.record.identifier, record["hosts"], record["environments"])
    return joined
