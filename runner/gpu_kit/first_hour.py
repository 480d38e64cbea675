"""Run the steps of the first hour: ``python -m runner.gpu_kit.first_hour OUT [--part N] [--step NAME] [--rehearse]``.

No failure ends it: what a machine cannot do is a result too. The output of every step is in ``OUT/NAME.txt``.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.gpu_kit.steps import EXPERIMENT, STEPS, Step

GRACE_S = 20.0
"""How long a step at its limit has to clean up."""


@dataclass(frozen=True)
class Outcome:
    """How a step ended: its exit status, None if it was ended at its limit, and the last line that it printed."""

    step: Step
    status: int | None
    taken_s: float
    last_line: str

    @property
    def text(self) -> str:
        """The outcome in one line."""
        ended = {0: "ok", None: "OVER ITS LIMIT"}.get(self.status, f"STATUS {self.status}")
        return f"{self.step.name:<14} {ended:<15} {self.taken_s:5.0f} of {self.step.limit_s} s  {self.last_line}"


def command_of(step: Step, out: Path, *, rehearse: bool = False) -> str | None:
    """Return the shell command of a step, None if it is no part of a rehearsal."""
    command = step.rehearsal if rehearse else step.command
    return None if command is None else command.format(out=shlex.quote(str(out)), experiment=EXPERIMENT)


def run_step(step: Step, command: str, out: Path) -> Outcome:
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
            status: int | None = process.wait(step.limit_s)
        except subprocess.TimeoutExpired:
            status = None
            _end(process)
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return Outcome(step, status, time.monotonic() - begun_s, lines[-1] if lines else "")


def run_steps(steps: Sequence[Step], out: Path, *, rehearse: bool = False) -> Iterator[Outcome]:
    """Run the steps in order, whatever becomes of each."""
    out.mkdir(parents=True, exist_ok=True)
    for step in steps:
        command = command_of(step, out, rehearse=rehearse)
        if command is not None:
            yield run_step(step, command, out)


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
    parser.add_argument("--rehearse", action="store_true", help="what can be tried without a GPU, on the CPU")
    given = parser.parse_args(arguments)
    chosen = [
        step
        for step in STEPS
        if (given.part is None or step.part in given.part) and (given.step is None or step.name in given.step)
    ]
    well = True
    for outcome in run_steps(chosen, given.out.resolve(), rehearse=given.rehearse):
        print(outcome.text, flush=True)
        well &= outcome.status == 0
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
