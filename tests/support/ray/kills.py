"""Kill one process of a run over a cluster at a moment that a seed decides, and see what is left and what goes on."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.ray.machine_namespaces import NamespaceMachine
from tests.support.ray.machine_remains import AGENT, command_of, network_of, processes_on, remains
from tests.support.ray.ray_cluster import RayCluster, RayNode, ray_cluster
from tests.support.until import until_within
from wanbed.results import load
from wanbed.testbed.claims.registry import claims

NODES = tuple(RayNode(name, {"wanbed.datacenter": name}, lasting=True) for name in ("east", "west"))
LIMIT_S = 30.0
"""How long something may be left of a run of which a process was killed."""
TRIALS = 4
_EXPERIMENT = {
    # The machines may lack netem: nearly nothing is to be emulated.
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "100us"},
    },
    "compute": {"forward": "5ms", "backward": "10ms", "activation": "64KiB"},
    "training": {"microbatches": 4, "iterations": 20, "warmup": 1},
    "variants": [{"name": "gpipe", "schedule": "gpipe"}],
    "repeats": TRIALS,
    "engine": "rack",
}
_APPEARANCE_S, _DRIVER_END_S, _RESUMED_S = 120.0, 60.0, 240.0
VICTIMS = ("driver", "agent", "raylet", "rank")
_LATEST_S = 5.0
"""The latest moment of a kill after the victim is there, or ranks are; the trials alone take 6 s, and a start more."""


@dataclass(frozen=True)
class Killed:
    """What followed a kill: when nothing was left, when the driver ended, with what status and which last line.

    ``trials_before`` is how many trials were kept, None if there was no run yet.
    """

    victim: str
    moment: int
    machine: str
    after_s: float
    clean_s: float
    ended_s: float
    status: int
    line: str
    trials_before: int | None


class KillingGround:
    """A cluster of two machines on which runs are killed, one after the other."""

    def __init__(self, cluster: RayCluster) -> None:
        self._cluster = cluster
        self._plain = {name: network_of(machine) for name, machine in cluster.machines.items()}

    def kill(self, victim: str, moment: int, runs: Path) -> Killed:
        """Kill ``victim`` of a run at the moment number ``moment``; assert all that has to follow, with ``--resume``.

        ``runs`` is an empty folder.
        """
        drawn = random.Random(f"{victim} {moment}")
        machine = self._cluster.machines[drawn.choice([node.name for node in NODES])]
        after_s = drawn.uniform(0, _LATEST_S)
        # The other half comes while the run starts.
        in_trials = victim == "rank" or drawn.random() < 0.5
        name = f"{victim}-{moment}-{os.getpid()}"
        with self._run(name, runs) as driver:
            self._await("rank" if in_trials else victim, machine, driver)
            time.sleep(after_s)
            # Between two trials there is no rank.
            pid = self._await(victim, machine, driver)
            killed_s = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            ended = _Watch(lambda: driver.poll() is not None, killed_s)
            clean = _Watch(lambda: ended.reached_s is not None and not self._left(name), killed_s)
            while not (ended.look() and clean.look()) and time.monotonic() < killed_s + _DRIVER_END_S:
                time.sleep(0.05)
            assert ended.reached_s is not None, "the driver goes on"
            assert clean.reached_s is not None, self._left(name)
            errors = driver.communicate()[1]
        if victim == "raylet":
            self._cluster.start_again(next(node for node in NODES if node.name == machine.name))
        kept = _trials_kept(runs)
        assert clean.reached_s < LIMIT_S, f"clean after {clean.reached_s:.1f} s"
        lines = [line for line in errors.splitlines() if line.startswith("wanbed: ")]
        assert "Traceback" not in errors, errors
        if victim == "driver":
            assert (driver.returncode, lines) == (-signal.SIGKILL, []), errors
        else:
            assert len(lines) == 1, f"status {driver.returncode} and not one line: {errors}"
            # Where the machine has left before the run has looked for machines, there is no room.
            never_there = victim == "raylet" and kept is None and "no room for the hosts of" in lines[0]
            assert driver.returncode == (2 if never_there else 4), errors
        self._resume(name, runs)
        return Killed(
            victim,
            moment,
            machine.name,
            after_s,
            clean.reached_s,
            ended.reached_s,
            driver.returncode,
            "".join(lines),
            kept,
        )

    @contextmanager
    def _run(self, name: str, runs: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
        document = json.dumps({"name": name, **_EXPERIMENT})
        module = ["-m", "tests.support.ray.unshaped_run", self._cluster.address, str(runs), document, *options]
        with self._cluster.start_driver(*module, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as driver:
            try:
                yield driver
            finally:
                driver.kill()

    def _resume(self, name: str, runs: Path) -> None:
        """Go on with a run, and assert that it is complete then."""
        with self._run(name, runs, "resume") as driver:
            errors = driver.communicate(timeout=_RESUMED_S)[1]
        assert driver.returncode == 0, errors
        (run,) = runs.iterdir()
        stored = load(run)
        assert stored.manifest["complete"]
        assert len(stored.trials) == TRIALS

    def _left(self, name: str) -> list[str]:
        """Return what is left of a run, on all machines and on the driver's."""
        left = [f"claim {each.folder}" for each in claims() if name in each.record.source]
        for machine in self._cluster.machines.values():
            left += [f"{machine.name}: {each}" for each in remains(machine, self._plain[machine.name])]
        return left

    def _await(self, victim: str, machine: NamespaceMachine, driver: "subprocess.Popen[str]") -> int:
        """Wait for a process that may be killed, and return its number; assert that the run does not end before."""
        found: list[int] = []

        def there() -> bool:
            found[:] = self._pids(victim, machine, driver)
            return bool(found) or driver.poll() is not None

        until_within(_APPEARANCE_S, there)
        assert found, f"the run ended before its {victim}: {driver.communicate()[1]}"
        return found[0]

    def _pids(self, victim: str, machine: NamespaceMachine, driver: "subprocess.Popen[str]") -> list[int]:
        if victim == "driver":
            return [driver.pid]
        found = []
        for pid in processes_on(machine):
            # It may end meanwhile.
            with suppress(OSError):
                if _IS_VICTIM[victim](command_of(pid)):
                    found.append(pid)
        return found


_IS_VICTIM: Mapping[str, Callable[[str], bool]] = {
    "agent": lambda command: command.startswith(AGENT),
    "raylet": lambda command: "/raylet/raylet " in command,
    "rank": lambda command: "wanbed.workloads.rank" in command,
}


class _Watch:
    """When a condition was first seen to hold, in seconds after ``since_s``; None if it was not yet."""

    def __init__(self, holds: Callable[[], bool], since_s: float) -> None:
        self._holds, self._since_s = holds, since_s
        self.reached_s: float | None = None

    def look(self) -> bool:
        """Return whether it has held."""
        if self.reached_s is None and self._holds():
            self.reached_s = time.monotonic() - self._since_s
        return self.reached_s is not None


def _trials_kept(runs: Path) -> int | None:
    """Return how many trials the one run in a folder has; assert that it can be loaded and is marked as incomplete."""
    found = [*runs.iterdir()] if runs.is_dir() else []
    if not found:
        return None
    (run,) = found
    manifest: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    assert not manifest["complete"]
    stored = load(run)
    assert len(stored.trials) < TRIALS
    return len(stored.trials)


@contextmanager
def killing_ground() -> Iterator[KillingGround]:
    """Yield a cluster to kill on, which ends with the block."""
    with ray_cluster(*NODES) as cluster:
        yield KillingGround(cluster)
