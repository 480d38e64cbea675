"""See from outside what a run has on a machine that namespaces play: a line for each thing, none once it is clean."""

import fcntl
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.ray.machine_namespaces import NamespaceMachine
from wanbed.testbed.claims.processes import MARKER, SUPERVISED

AGENT = "ray::MachineAgent"
"""What an agent's process is called."""
_NS_GET_PARENT = 0xB702


def remains(machine: NamespaceMachine, plain: Sequence[str]) -> list[str]:
    """Return the processes, network namespaces and leases of runs on a machine, and how its network differs.

    ``plain`` is the machine's ``network_of`` as it was before any run.
    """
    own = os.readlink(f"/proc/{machine.pid}/ns/net")
    found = [f"lease {entry.name}" for entry in Path(f"/proc/{machine.pid}/root/run/wanbed").glob("*")]
    for pid in processes_on(machine):
        # It may end meanwhile.
        with suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes()
            if any(f"{name}=wb-".encode() in variables for name in (MARKER, SUPERVISED)):
                found.append(f"process {pid} {command_of(pid)}")
            elif command_of(pid).startswith(AGENT):
                found.append(f"agent {pid}")
            found += [f"{space} of {pid} {command_of(pid)}" for space in _network_namespaces(pid) if space != own]
    return [*found, *sorted({*network_of(machine)} ^ {*plain})]


def network_of(machine: NamespaceMachine) -> list[str]:
    """Return the lines that iproute2 prints of a machine's own interfaces, addresses, routes and qdiscs."""
    shown = [
        subprocess.run(machine.inside(*program.split()), check=True, capture_output=True, text=True).stdout
        for program in ("ip -o link", "ip -4 -o address", "ip -4 route", "tc qdisc show")
    ]
    return [line for text in shown for line in text.splitlines()]


def processes_on(machine: NamespaceMachine) -> Iterator[int]:
    """Yield the processes of a machine, by their numbers here, those in process namespaces of their own included."""
    space = Path(f"/proc/{machine.pid}/ns/pid").stat().st_ino
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if space in _process_namespaces(entry):
                yield int(entry.name)


def _process_namespaces(process: Path) -> Iterator[int]:
    """Yield the inodes of the process namespaces that a process is in, up to that of this machine."""
    current = os.open(process / "ns/pid", os.O_RDONLY)
    try:
        while True:
            yield os.fstat(current).st_ino
            above = fcntl.ioctl(current, _NS_GET_PARENT)
            os.close(current)
            current = above
    finally:
        os.close(current)


def command_of(pid: int) -> str:
    """Return the command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def _network_namespaces(pid: int) -> set[str]:
    """Return the network namespaces that a process is in or holds open."""
    held = {os.readlink(f"/proc/{pid}/ns/net")}
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if (target := os.readlink(descriptor)).startswith("net:["):
                held.add(target)
    return held
