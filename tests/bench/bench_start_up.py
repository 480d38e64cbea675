"""How long the command takes before it works: help beside ``import typer``, and a trivial simulation.

Seconds are those of the processor, medians of repeats that take turns, so that a busy machine slows all of them alike.
What is imported is compiled to bytecode before, as it is for users; so is the simulator's core.
"""

import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median

from wanbed.ground.compiled_core.core_build import build_core

REPEATS = 7
MAX_RATIO, MAX_RATIO_OF_SIMULATION = 3.0, 18.0
COMMANDS = {
    "import typer": ["-c", "import typer"],
    "wanbed --help": ["-m", "wanbed", "--help"],
    "wanbed run --help": ["-m", "wanbed", "run", "--help"],
    "wanbed simulate --help": ["-m", "wanbed", "simulate", "--help"],
    "wanbed simulate first": ["-m", "wanbed", "simulate", "first"],
}


def used_s() -> float:
    """Seconds of the processor that all processes used which this one has started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def processor_s(folder: Path, arguments: list[str]) -> float:
    """Seconds of the processor that a process and its children use."""
    before_s = used_s()
    environment = {**os.environ, "WANBED_PURE": "0", "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, check=True, capture_output=True)
    return used_s() - before_s


def test_start_up(tmp_path: Path) -> None:
    build_core()
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for arguments in COMMANDS.values():
        processor_s(tmp_path, arguments)
    for _ in range(REPEATS):
        for name, arguments in COMMANDS.items():
            seconds[name].append(processor_s(tmp_path, arguments))
    middle = {name: median(each) for name, each in seconds.items()}
    print()
    for name, each_s in middle.items():
        print(f"{name:23s} {each_s:5.2f} s, {each_s / middle['import typer']:4.1f} times import typer")
    slow = [name for name in COMMANDS if "--help" in name and middle[name] > MAX_RATIO * middle["import typer"]]
    assert slow == []
    assert middle["wanbed simulate first"] < MAX_RATIO_OF_SIMULATION * middle["import typer"]
