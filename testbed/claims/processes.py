"""Find the processes of a testbed, whoever is their parent.

Every process that a testbed starts has the testbed's identifier in its environment from its first instruction on, and
its children inherit it. A program may clear its environment, as ``sudo`` does, but it stays in its host's network
namespace.
"""

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

MARKER = "WANBED_TESTBED"
"""The variable whose value is the identifier of the testbed that a process belongs to."""

SUPERVISED = "WANBED_SUPERVISED"
"""The variable of a supervisor: its value is the identifier of the testbed whose processes it ends."""


def process_start_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, None if it does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, start_ticks = fields[0], int(fields[19])
    return None if state in "ZX" else start_ticks


def marked_processes(identifier: str, variable: str = MARKER) -> list[int]:
    """Return the PIDs of processes whose environment has ``variable`` with this value."""
    marker = f"{variable}={identifier}".encode()
    found = []
    for pid in _all_processes():
        with suppress(OSError):
            if marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def processes_of(identifier: str, variable: str = MARKER) -> list[int]:
    """Return the PIDs of the marked processes and of all others in network namespaces that belong to them."""
    marked = set(marked_processes(identifier, variable))
    if not marked:
        return []
    return sorted(marked.union(*_namespaces_of(marked).values()))


def namespace_count(identifier: str) -> int:
    """Return the number of network namespaces that belong to a testbed's processes."""
    return len(_namespaces_of(set(marked_processes(identifier))))


def _namespaces_of(marked: set[int]) -> dict[str, list[int]]:
    """Return the network namespaces whose oldest process is marked, each with the PIDs of its processes.

    A marked process may be in a namespace that belongs to others; their processes are older. That of this process
    belongs to no testbed: over a relay all of a testbed's processes are in it, and may be the oldest of this user's.
    """
    own = os.readlink("/proc/self/ns/net")
    processes = defaultdict(list)
    for pid in _all_processes():
        # A process that is just ending is in no namespace.
        with suppress(OSError):
            namespace = os.readlink(f"/proc/{pid}/ns/net")
            if namespace != own and (started := process_start_ticks(pid)) is not None:
                # Of the same tick, the one with the lower number is older: its child often starts within the tick.
                processes[namespace].append((started, pid))
    return {namespace: [pid for _, pid in found] for namespace, found in processes.items() if min(found)[1] in marked}


def _all_processes() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
