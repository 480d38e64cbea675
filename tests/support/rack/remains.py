"""As a program: print what runs have left on this machine, as JSON: claims, processes, network namespaces, agents."""

import json
import os
from contextlib import suppress
from pathlib import Path

from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.claims.registry import STATE_ROOT

NOTHING: dict[str, list[str]] = {"claims": [], "processes": [], "namespaces": [], "agents": []}
_AGENT = b"ray::MachineAgent"


def remains() -> dict[str, list[str]]:
    """Return the folders of claims, the processes of testbeds, and the network namespaces beside the machine's own.

    Agents are there from before a lease until after it.
    """
    processes, namespaces, agents = [], set(), []
    own = os.readlink("/proc/1/ns/net")
    for process in Path("/proc").glob("[0-9]*"):
        # One that is just ending is no remainder.
        with suppress(OSError):
            namespaces.add(os.readlink(process / "ns/net"))
            if f"{MARKER}=".encode() in (process / "environ").read_bytes():
                processes.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            elif (process / "cmdline").read_bytes().startswith(_AGENT):
                agents.append(process.name)
    claims = [each.name for each in STATE_ROOT.iterdir() if each.name.isdigit()] if STATE_ROOT.is_dir() else []
    return {
        "claims": claims,
        "processes": processes,
        "namespaces": sorted(namespaces - {own, ""}),
        "agents": agents,
    }


if __name__ == "__main__":
    print(json.dumps(remains()))
