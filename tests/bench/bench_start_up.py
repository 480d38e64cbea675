"""How long the command takes before it works: help beside ``import typer``, and a trivial simulation.

Seconds are those of the processor, medians of repeats that take turns, so that a busy machine slows all of them alike.
"""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

REPEATS = 7
MAX_RATIO = 3.0
COMMANDS = {
    "import typer": ["-c", "import typer"],
    "wanbed --help": ["-m", "wanbed", "--help"],
    "wanbed run --help": ["-m", "wanbed", "run", "--help"],
    "wanbed simulate --help": ["-m", "wanbed", "simulate", "--help"],
    "wanbed simulate first": ["-m", "wanbed", "simulate", "first"],
}


def processor_s(folder: Path, arguments: list[str]) -> float:
    """Seconds of the processor that a process and its children use."""
    before = os.times()
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_start_up(tmp_path: Path) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(REPEATS):
        for name, arguments in COMMANDS.items():
            seconds[name].append(processor_s(tmp_path, arguments))
    middle = {name: median(each) for name, each in seconds.items()}
    print()
    for name, each_s in middle.items():
        print(f"{name:23s} {each_s:5.2f} s, {each_s / middle['import typer']:4.1f} times import typer")
    slow = [name for name in COMMANDS if "--help" in name and middle[name] > MAX_RATIO * middle["import typer"]]
    assert slow == []
