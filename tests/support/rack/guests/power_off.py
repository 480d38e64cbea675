"""Pull the plug of a guest machine during a run over Ray, and see what becomes of the run and of the other machines."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.rack.guests.guest_cluster import GuestCluster
from tests.support.rack.guests.guest_machine import GuestMachine
from tests.support.rack.remains import NOTHING
from tests.support.ray.ray_cluster import RayNode
from tests.support.until import until_within
from wanbed.results import load

LEFT_S = 30.0
"""How long something may be left on the machines that go on."""
_END_S = 120.0


@dataclass(frozen=True)
class PoweredOff:
    """What became of a run: its driver's exit status and last line, and how long it and the rest took after that."""

    status: int
    last_line: str
    ended_s: float
    clean_s: float


def start_run(rack: GuestCluster, file: Path, *options: str) -> "subprocess.Popen[str]":
    """Start ``wanbed run`` over the rack; its runs are in ``runs`` beside the file."""
    where = ("--rack", rack.address, "--runs", str(file.parent / "runs"))
    argv = ("-m", "wanbed", "run", str(file), *where, "--json", *options)
    return rack.start_driver(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def power_off(rack: GuestCluster, name: str, driver: "subprocess.Popen[str]") -> PoweredOff:
    """End a machine, wait for the driver's end, and for the others to be clean.

    Raise AssertionError if that takes longer than ``LEFT_S`` from the plug on, for the machines, or if the driver goes
    on.
    """
    begin_s = time.monotonic()
    rack.power_off(name)
    others = [machine for other, machine in rack.machines.items() if other != name]
    left: dict[str, dict[str, list[str]]] = {}

    def clean() -> bool:
        left.update((each.name, remains_on(each)) for each in others if left.get(each.name) != NOTHING)
        return all(each == NOTHING for each in left.values())

    try:
        until_within(LEFT_S, clean)
    except AssertionError:
        raise AssertionError(f"{LEFT_S:g} s after {name} was powered off, this is left: {left}") from None
    clean_s = time.monotonic() - begin_s
    _, errors = driver.communicate(timeout=_END_S)
    return PoweredOff(driver.returncode, errors.strip().splitlines()[-1], time.monotonic() - begin_s, clean_s)


def remains_on(machine: GuestMachine) -> dict[str, list[str]]:
    """Return what runs have left on a machine, see ``remains``."""
    found: dict[str, list[str]] = json.loads(machine.check([sys.executable, "-m", "tests.support.rack.remains"]))
    return found


def check_marked(folder: Path) -> int | None:
    """Assert that the one run in a folder says that it is not complete. Return how many trials it has, None for none.

    There is none if the machine was powered off before the run had looked at its machines.
    """
    found = [*folder.iterdir()] if folder.is_dir() else []
    if not found:
        return None
    (run,) = found
    assert not json.loads((run / "manifest.json").read_text())["complete"]
    return len(load(run).trials)


def power_on(rack: GuestCluster, node: RayNode) -> None:
    """Start the machine of a node again, which then joins the cluster."""
    rack.boot(node)
    rack.join(node)
