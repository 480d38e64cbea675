"""Run the steps of the first hour: ``python -m studies.gpu_kit.first_hour OUT [--part N] [--step NAME] [--rehearse]``.

No failure ends it: what a machine cannot do is a result too. The output of every step is in ``OUT/NAME.txt``. With
``--archive`` all that is in ``OUT`` is packed anew after every step: a machine that is taken away early has left what
was measured until then.
"""

import argparse
import math
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from studies.gpu_kit.steps import STEPS, KitStep

GRACE_S = 20.0
"""The time that a step at its limit has to clean up."""


@dataclass(frozen=True)
class StepOutcome:
    """The end of a step: its exit status, None if it was ended at its limit, and the last line that it printed."""

    step: KitStep
    status: int | None
    taken_s: float
    last_line: str

    @property
    def text(self) -> str:
        """The outcome in one line."""
        ended = {0: "ok", None: "OVER ITS TIME"}.get(self.status, f"STATUS {self.status}")
        return f"{self.step.name:<14} {ended:<15} {self.taken_s:5.0f} of {self.step.limit_s} s  {self.last_line}"


def run_step(step: KitStep, command: str, out: Path, limit_s: float) -> StepOutcome:
    """Run the command until it ends or its limit is over. Its output goes to ``out``."""
    log, begun_s = out / f"{step.name}.txt", time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
            _end(process)
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return StepOutcome(step, status, time.monotonic() - begun_s, lines[-1] if lines else "")


def run_steps(
    steps: Sequence[KitStep], out: Path, *, rehearse: bool = False, within_s: float = math.inf
) -> Iterator[StepOutcome]:
    """Run the steps in order, whatever becomes of each, and end after ``within_s``.

    A step that would have less time than its limit gets what is left.
    """
    out.mkdir(parents=True, exist_ok=True)
    end_s = time.monotonic() + within_s
    for step in steps:
        command = step.shell(shlex.quote(str(out)), rehearse=rehearse)
        left_s = end_s - time.monotonic() - GRACE_S
        if command is None:
            continue
        if left_s <= 0:
            yield StepOutcome(step, None, 0.0, "not begun: the time is over")
        else:
            yield run_step(step, command, out, min(step.limit_s, left_s))


def pack(out: Path, archive: Path) -> None:
    """Pack the folder ``out``. At every moment ``archive`` is a whole one."""
    unfinished = archive.with_name(f"{archive.name}.new")
    with tarfile.open(unfinished, "w:gz", compresslevel=1) as packed:
        packed.add(out, "out")
    unfinished.replace(archive)


def _end(process: subprocess.Popen[bytes]) -> None:
    # A run cleans up after SIGTERM, which unlike an interrupt is not ignored by what a shell has put in the background.
    for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience_s)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def main(arguments: list[str]) -> int:
    """Run the chosen steps and print a line for each. Return 1 if one has not ended well."""
    parser = argparse.ArgumentParser(description="Run what a GPU is needed for, step by step.")
    parser.add_argument("out", type=Path, help="folder for results")
    parser.add_argument("--part", type=int, action="append", help="only steps of this part; may be given again")
    parser.add_argument("--step", action="append", choices=[step.name for step in STEPS], help="only this step")
    parser.add_argument("--within", type=float, default=math.inf, metavar="S", help="end after so many seconds")
    parser.add_argument("--archive", type=Path, help="pack the folder into this file (.tgz) after every step")
    parser.add_argument("--rehearse", action="store_true", help="what can be tried without a GPU, on the CPU")
    given = parser.parse_args(arguments)
    chosen = [
        step
        for step in STEPS
        if (given.part is None or step.part in given.part) and (given.step is None or step.name in given.step)
    ]
    well = True
    out = given.out.resolve()
    for outcome in run_steps(chosen, out, rehearse=given.rehearse, within_s=given.within):
        print(outcome.text, flush=True)
        well &= outcome.status == 0
        if given.archive is not None:
            pack(out, given.archive)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
