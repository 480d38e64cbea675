"""Programs that run with the hook, as a testbed would start them, and what it logged."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from wanbed.results.records.span_log import Span, SpanLogContents, read_span_log
from wanbed.workloads.user_programs.program_start import with_hook

LOOPBACK = "127.0.0.1"
PATIENCE_S = 240
"""torch takes long to import on a machine that has more to do."""


class HookedProgram:
    """One process of a program, with its configuration, log and outcome in a folder."""

    def __init__(
        self, folder: Path, command: Sequence[str], *, environment: Mapping[str, str], **fields: object
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log_path = folder / "log.spans"
        self.epoch_ns = time.monotonic_ns()
        rank = int(environment.get("RANK", 0))
        header = {"rank": rank, "host": f"east-{rank}", "datacenter": "east", "gpu": 0, "pipeline": 0, "stage": 0}
        config = {
            "log": str(self.log_path),
            "header": header,
            "epoch_ns": self.epoch_ns,
            "iterations": 4,
            "profile": 0,
            "marked_by": "optimizer",
            **fields,
        }
        path = folder / "hook.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        # The program starts in a folder of its own, as one of a user's does.
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=with_hook({**os.environ, "OMP_NUM_THREADS": "1", **environment}, path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> tuple[int, str, str]:
        """Return the status, the output and the errors."""
        try:
            self.output, errors = self._process.communicate(timeout=PATIENCE_S)
        finally:
            self._process.kill()
        return self._process.returncode, self.output, errors

    @property
    def log(self) -> SpanLogContents:
        return read_span_log(self.log_path)


def start_program(folder: Path, script: str, *arguments: str, **fields: object) -> HookedProgram:
    """Start a script with the hook."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.py").write_text(script, encoding="utf-8")
    environment = fields.pop("environment", {})
    assert isinstance(environment, dict)
    return HookedProgram(folder, [sys.executable, "program.py", *arguments], environment=environment, **fields)


def run_program(folder: Path, script: str, *arguments: str, **fields: object) -> tuple[HookedProgram, str]:
    """Run a script to its end, which has to be a good one. Return it with what it printed as errors."""
    program = start_program(folder, script, *arguments, **fields)
    status, _, errors = program.wait()
    assert status == 0, errors
    return program, errors


def run_ranks(folder: Path, script: str, ranks: int, **fields: object) -> list[HookedProgram]:
    """Run the ranks of one distributed program over loopback to their good ends."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = probe.getsockname()[1]
    meeting = {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "GLOO_SOCKET_IFNAME": "lo"}
    programs = [
        start_program(
            folder / f"rank-{rank}",
            script,
            environment={**meeting, "RANK": str(rank)},
            **fields,
        )
        for rank in range(ranks)
    ]
    outcomes = [program.wait() for program in programs]
    assert all(status == 0 for status, _, _ in outcomes), outcomes
    return programs


def spans_of(log: SpanLogContents, kind: str) -> list[Span]:
    """Return the spans of one kind in the order of the log."""
    return [span for span in log.spans if span.kind == kind]
