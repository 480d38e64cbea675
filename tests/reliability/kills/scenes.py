"""The scenes: commands that are disturbed, each with an experiment that takes seconds."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.reliability.kills.outcomes import (
    OUT,
    Reading,
    iteration_times,
    printed_numbers,
    printed_text,
    simulated_trials,
    written_files,
)
from tests.support.runner.known_links import KnownLink, known_log, write_log
from tests.support.runner.wanbed_command import stored

_FILE, _GIVEN, _LOG = "experiment.yaml", "given", "log.csv"
_RUNS = ("--runs", OUT)
_NOT_DILATED = ("--set", "dilation=1")
"""The command measures no capacity first."""

_SMALL: Mapping[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "5ms", "rate": "50Mbit"},
    },
    "compute": {"forward": "5ms", "backward": "10ms", "activation": "64KiB"},
    "training": {"microbatches": 4, "iterations": 8, "warmup": 1},
}
_TWO_TRIALS = {**_SMALL, "variants": [{"name": name, "schedule": name} for name in ("gpipe", "1f1b")]}
_SWEPT = {
    **_TWO_TRIALS,
    "training": {"microbatches": 32, "iterations": 24, "warmup": 1},
    "sweep": {"topology.wan.latency": ["5ms", "10ms", "20ms"]},
}
_PROGRAM_TEXT = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for _ in range(6):
    dist.all_reduce(torch.zeros(1000))
    print("step", flush=True)
dist.destroy_process_group()
"""
_PROGRAM = {
    **_SMALL,
    "training": {},
    "compute": {},
    "variants": [
        {
            "name": "program",
            "program": {
                "command": ["{python}", "{folder}/program.py"],
                "launcher": "torchrun",
                "pattern": "step",
                "iterations": 4,
                "warmup": 1,
                "env": {"OMP_NUM_THREADS": "1"},
            },
        }
    ],
}


@dataclass(frozen=True)
class Scene:
    """A command to disturb, in a folder of its own.

    ``usual_s`` is its duration on a quiet machine with two cores. ``reading`` is of what is the same each time, None if
    nothing is, as on a real clock. ``weight`` is how often it is drawn, beside others.
    """

    name: str
    arguments: tuple[str, ...]
    usual_s: float
    reading: Reading | None = None
    experiment: Mapping[str, Any] = field(default_factory=lambda: _SMALL)
    starts_processes: bool = False
    weight: int = 2

    @property
    def resumes(self) -> bool:
        """Whether the command has ``--resume``, and leaves runs."""
        return self.arguments[0] in {"run", "simulate"}

    @property
    def writes(self) -> bool:
        """Whether the command writes files of its own."""
        return any(word.startswith(OUT) for word in self.arguments)

    @property
    def passes_status_through(self) -> bool:
        """Whether the command ends with the status of a program."""
        return self.arguments[0] == "exec"

    @property
    def may_boot_guests(self) -> bool:
        """Whether processes of User-Mode Linux may be among those that it starts."""
        return self.arguments[0] in {"run", "exec", "calibrate"} and not {"relay", "--no-wan"} & set(self.arguments)

    @property
    def may_be_outside_tolerance(self) -> bool:
        """Whether a busy machine makes status 1 of it."""
        return self.reading is None

    def prepare(self, folder: Path, given: Path) -> None:
        """Put everything that the command reads into an empty folder; ``given`` is a finished run."""
        (folder / OUT).mkdir(parents=True)
        (folder / _FILE).write_text(json.dumps(self.experiment), encoding="utf-8")
        (folder / "program.py").write_text(_PROGRAM_TEXT, encoding="utf-8")
        if _LOG in self.arguments:
            write_log(known_log(KnownLink(), seconds=20), folder / _LOG)
        if _GIVEN in self.arguments:
            shutil.copytree(given, folder / _GIVEN)


def given_run(folder: Path) -> Path:
    """Simulate the run that some scenes read."""
    return stored("simulate", json.dumps(_TWO_TRIALS), folder)


RACK = "run, rack"
_PING = ("sh", "-c", "ping -c 2 -i 0.2 west-0 >/dev/null && echo answered")
SCENES = (
    Scene("simulate", ("simulate", _FILE, "--jobs", "1", *_RUNS), 3, simulated_trials, _SWEPT, weight=3),
    Scene(
        "simulate, two processes",
        ("simulate", _FILE, "--jobs", "2", *_RUNS),
        3,
        simulated_trials,
        _SWEPT,
        starts_processes=True,
        weight=4,
    ),
    Scene("plan", ("plan", _FILE, "--json"), 1, printed_text),
    Scene("run", ("run", _FILE, *_NOT_DILATED, *_RUNS), 10, starts_processes=True),
    Scene(
        "run, relay",
        ("run", _FILE, "--substrate", "relay", *_NOT_DILATED, *_RUNS),
        10,
        starts_processes=True,
    ),
    Scene(
        "run, virtual time",
        ("run", _FILE, "--clock", "virtual", *_RUNS),
        6,
        iteration_times,
        _TWO_TRIALS,
        starts_processes=True,
        weight=4,
    ),
    Scene("run, program", ("run", _FILE, *_NOT_DILATED, *_RUNS), 20, None, _PROGRAM, starts_processes=True, weight=1),
    Scene(
        "exec",
        ("exec", _FILE, "east-0", "--no-wan", "--", "sh", "-c", "sleep 0.5; echo done"),
        2,
        printed_text,
        starts_processes=True,
    ),
    Scene(
        "exec, virtual time",
        ("exec", _FILE, "east-0", "--clock", "virtual", "--", *_PING),
        4,
        printed_text,
        starts_processes=True,
    ),
    Scene("calibrate", ("calibrate", _FILE, *_NOT_DILATED), 10, starts_processes=True, weight=1),
    Scene(
        "calibrate, virtual time",
        ("calibrate", _FILE, "--clock", "virtual", "--json"),
        5,
        printed_numbers,
        starts_processes=True,
    ),
    Scene("learn-link", ("learn-link", _LOG, "--no-cell", "--output", f"{OUT}/link"), 3, written_files),
    Scene("validate", ("validate", "--json"), 2, printed_numbers, weight=1),
    Scene("report", ("report", _GIVEN, "--output", f"{OUT}/report.html"), 2, written_files),
    Scene("trace", ("trace", _GIVEN, "--output", f"{OUT}/trace.json"), 1, written_files, weight=1),
)
