"""A program that is run as on a host: really, by its process, with its files in a folder of the test."""

import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from wanbed.module_process import module_command
from wanbed.results.records.span_log import RankPlace, SpanLogContents, read_span_log
from wanbed.testbed.claims.cleaning import end_processes
from wanbed.testbed.claims.processes import marked_processes
from wanbed.workloads.user_programs.program_config import MarkedOutput, OutputConfig, ProgramConfig

PATIENCE_S = 60
MODULE = "wanbed.workloads.user_programs.program_process"
_VARIABLE = "WANBED_PROGRAM_TEST"
HEADER = RankPlace(1, "west-0", "west", 0, 1, 0)


@dataclass(frozen=True)
class Programs:
    """Starts programs, each in a process of ``program_process``, and finds what is left of them."""

    folder: Path
    mark: str = field(default_factory=lambda: secrets.token_hex(6))

    @property
    def stdout(self) -> Path:
        return self.folder / "stdout"

    @property
    def stderr(self) -> Path:
        return self.folder / "stderr"

    @property
    def spans(self) -> SpanLogContents:
        return read_span_log(self.folder / "spans.jsonl")

    def config(self, *command: str, **fields: Any) -> ProgramConfig:
        files: dict[str, Any] = {"stdout": str(self.stdout), "stderr": str(self.stderr), "limit_bytes": 2**20}
        files |= {name: fields.pop(name) for name in ("stdout", "stderr", "fault", "limit_bytes") if name in fields}
        fields = {"folder": str(self.folder), "grace_s": 30.0, "environment": {}, **fields}
        fields["environment"] = {**fields["environment"], _VARIABLE: self.mark}
        if "pattern" in fields:
            marks = {"header": HEADER, "span_log": str(self.folder / "spans.jsonl")}
            marks |= {name: fields.pop(name) for name in ("pattern", "span_log", "iterations") if name in fields}
            fields["marks"] = MarkedOutput(**marks)
        return ProgramConfig("rank 1 on west-0", command, output=OutputConfig(**files), **fields)

    def start(self, config: ProgramConfig, within: Sequence[str] = (), **popen: Any) -> "subprocess.Popen[str]":
        """Start the program's process, by the command ``within``."""
        path = self.folder / "program.json"
        config.write(path)
        argv = [*within, *module_command(MODULE, str(path))]
        return subprocess.Popen(argv, cwd="/", stderr=subprocess.PIPE, text=True, **popen)

    def run(self, *command: str, within: Sequence[str] = (), **fields: Any) -> tuple[int, str]:
        """Run a program to its end; return the exit status and what the process printed. Nothing of it may be left."""
        process = self.start(self.config(*command, **fields), within)
        _, printed = process.communicate(timeout=PATIENCE_S)
        assert self.left() == []
        return process.returncode, printed

    def python(self, script: str, **fields: Any) -> tuple[int, str]:
        """Run a Python script to its end."""
        return self.run(sys.executable, "-c", script, **fields)

    def left(self) -> list[int]:
        """Return the processes of the program that are there."""
        return marked_processes(self.mark, _VARIABLE)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    made = Programs(tmp_path)
    yield made
    end_processes(made.mark, _VARIABLE)


@pytest.fixture(scope="session")
def own_mounts() -> Callable[[str], list[str]]:
    """Give the command line that runs a program in a mount namespace of its own after a script, as any user."""
    return lambda script: ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", f'{script}\nexec "$@"', "sh"]
