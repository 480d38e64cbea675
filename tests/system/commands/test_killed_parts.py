"""``kill -9`` of what a command has started: one line, and the status of a command without data."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.runner.wanbed_command import WANBED
from tests.support.testbed.processes import command_line, descendants
from tests.support.until import until_within
from wanbed.runner.runs.faults import NO_DATA

EXPERIMENT = """
topology:
  datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}]
  wan: {latency: 5ms, rate: 50Mbit}
compute: {forward: 20ms, backward: 40ms, activation: 64KiB}
training: {microbatches: 32, iterations: 600}
variants: [{name: one, schedule: gpipe}, {name: other, schedule: 1f1b}]
"""
NOT_DILATED = ("--set", "dilation=1")
RELAY = ("--substrate", "relay", *NOT_DILATED)
PATIENCE_S = 120

KILLED = {
    "a process that simulates": (("simulate", "--jobs", "2"), r"simulation_process", 0.5),
    "the kernel of virtual time": (("run", "--clock", "virtual"), r"^\S*/user-mode-linux/|^\S*/virtual-kernel/", 1.0),
    "the relay of a calibration": (("run", *RELAY), r"relay_process", 2.0),
    "a rank over the relay": (("run", *RELAY), r"workloads\.rank", 1.0),
    "the relay of a trial": (("run", *RELAY), r"workloads\.rank", 1.0),
    "a rank": (("run", *NOT_DILATED), r"workloads\.rank", 1.0),
    "the gateways of a trial": (("run", *NOT_DILATED), r"workloads\.rank", 1.0),
    "a background flow": (
        ("run", *NOT_DILATED, "--set", "background=[{name: bulk, from: east, to: west, rate: 5Mbit}]"),
        r"workloads\.background",
        1.0,
    ),
}
"""By what is killed: the command, a process that shows that it is time, and how long (s) after that has begun."""

VICTIMS = {"the relay of a trial": r"relay_process", "the gateways of a trial": r"linux\.uml|user-mode-linux"}
"""What is killed where that is another process."""

QUICK = ("a process that simulates", "the kernel of virtual time", "the relay of a calibration")


@pytest.mark.parametrize(
    "what", [each if each in QUICK else pytest.param(each, marks=pytest.mark.soak) for each in KILLED]
)
def test_what_is_killed_leaves_one_line_and_no_data(what: str, tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    (command, *options), sign, later_s = KILLED[what]
    argv = [*WANBED, command, "experiment.yaml", *options]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:

        def matching(pattern: str) -> list[int]:
            assert running.poll() is None, running.communicate()[1]
            return [pid for pid in descendants(running.pid) if re.search(pattern, command_line(pid))]

        try:
            until_within(PATIENCE_S, lambda: bool(matching(sign)))
            time.sleep(later_s)
            os.kill(matching(VICTIMS.get(what, sign))[0], signal.SIGKILL)
            errors = running.communicate(timeout=PATIENCE_S)[1]
        finally:
            running.terminate()
    assert running.returncode == NO_DATA, errors
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("wanbed: ")


@pytest.mark.parametrize(
    ("program", "options"), [("mnexec", NOT_DILATED), ("sh", ("--clock", "virtual"))], ids=["a host", "a guest"]
)
def test_what_is_killed_as_it_starts_says_nothing_of_the_machine(
    tmp_path: Path, program: str, options: tuple[str, ...]
) -> None:
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    killed = tmp_path / "programs" / program
    killed.parent.mkdir()
    killed.write_text("#!/bin/bash\nkill -KILL $$\n")
    killed.chmod(0o755)
    done = subprocess.run(
        [*WANBED, "run", "experiment.yaml", *options],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{killed.parent}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == NO_DATA, done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(r"^wanbed: .*(ended by SIGKILL|was killed before it began)", done.stderr.splitlines()[-1])
