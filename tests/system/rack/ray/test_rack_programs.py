"""Users' programs over several machines, which processes in namespaces of this one play: how they fail, and end."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.rack.driving_program import faults_of
from tests.support.rack.guests.guest_machine import ROOT
from tests.support.rack.rack_machine import RackMachine, namespace_machines
from tests.support.until import until_within
from wanbed.module_process import module_command
from wanbed.testbed.rack.machine_handle import MachineLostError

# The witness of a rack over Ray is test_rack_on_ray.py.
pytestmark = pytest.mark.soak

LEASE_S = 3.0
FOREVER = "4713"
"""How long the daemon of a program sleeps, which tells it from every other process here."""
CODES = {
    "hang.py": """
import os, sys, time
print("step 0", flush=True)
if os.environ["RANK"] == "1":
    print("waiting for Godot", file=sys.stderr, flush=True)
    time.sleep(600)
for step in range(1, 4): print("step", step, flush=True)
time.sleep(600)
""",
    "noise.py": "while True: print('noise' * 1000)",
    "where.py": """
import os, pathlib, time
assert pathlib.Path(os.getcwd(), "where.py").read_text() == pathlib.Path(__file__).read_text()
os.makedirs("checkpoints")
for step in range(4): print(f"step {step} of {os.environ['RANK']} on {os.uname().nodename}", flush=True)
time.sleep(60)
""",
    "daemon.py": f"""
import os, subprocess, time
subprocess.Popen(["setsid", "-f", "sleep", "{FOREVER}"], env={{"PATH": os.environ["PATH"]}})
time.sleep(60)
""",
}
PROGRAM: dict[str, Any] = {"pattern": "step", "iterations": 3, "warmup": 1}


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RackMachine]]:
    (tmp_path / "programs").mkdir()
    monkeypatch.chdir(tmp_path / "programs")
    for name, code in CODES.items():
        Path(name).write_text(code)
    with namespace_machines(2, tmp_path, lease_s=LEASE_S) as running:
        yield running


def daemons() -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cmdline").read_bytes() == f"sleep\0{FOREVER}\0".encode():
                found.append(int(process.name))
    return found


def test_a_program_that_misbehaves_ends_in_one_line_and_the_next_trial_is_as_if_it_had_not_been(
    machines: list[RackMachine], tmp_path: Path
) -> None:
    hang, noise, where = (["{python}", name] for name in ("hang.py", "noise.py", "where.py"))
    said = faults_of(
        [machine.handle for machine in machines],
        tmp_path / "driver",
        [
            {**PROGRAM, "command": hang, "iterations": 900, "timeout": "2s"},
            {**PROGRAM, "command": noise, "output_limit": "1MiB"},
            {**PROGRAM, "command": where, "read_only": True},
            {**PROGRAM, "command": where},
        ],
    )
    assert said[0] == (
        "rank 1 on west-0 has ended no iteration for 2 s after 1 iteration: it printed last: waiting for Godot"
    )
    assert "printed more than 1MiB to standard output: noise" in said[1]
    assert "Read-only file system: 'checkpoints'" in said[2]
    # Nothing of a noisy rank's megabyte is among what comes back from a later trial.
    assert json.loads(said[3]) == {
        f"rank-{rank}.stdout": "".join(f"step {step} of {rank} on {host}\n" for step in range(4))
        for rank, host in ((0, "east-0"), (1, "west-0"))
    }
    # What a program writes in its folder stays on its machine, and ends with the lease.
    assert sorted(path.name for path in Path.cwd().iterdir()) == sorted(CODES)
    assert not [*Path("/tmp").glob("wb-*/0/where.py")]


@pytest.mark.parametrize("victim", ["driver", "machine"])
def test_of_a_killed_driver_or_machine_no_process_of_a_program_is_left(
    machines: list[RackMachine], tmp_path: Path, victim: str
) -> None:
    places = json.dumps([machine.place for machine in machines])
    program = json.dumps({**PROGRAM, "command": ["{python}", "daemon.py"]})
    driver = subprocess.Popen(
        module_command("tests.support.rack.driving_program", places, str(tmp_path / "driver"), program),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with driver:
        try:
            until_within(60, lambda: len(daemons()) == 2)
            killed_s = time.monotonic()
            if victim == "driver":
                driver.kill()
            else:
                machines[1].pull_the_plug()
            until_within(LEASE_S + 10, lambda: not daemons())
            output, _ = driver.communicate(timeout=30)
        finally:
            driver.kill()
    assert time.monotonic() - killed_s < 30
    lost = str(MachineLostError("machine space1 has gone: its process does not answer"))
    assert output == ("" if victim == "driver" else f"{lost}\n")
