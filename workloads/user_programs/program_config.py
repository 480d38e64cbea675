"""The configuration of one process of a user's program, as a JSON file.

The runner writes one for each process. ``wanbed.workloads.user_programs.program_process`` reads it with the standard
library only.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wanbed.ground.dataclass_json import read_config, write_config
from wanbed.results.records.span_log import MAX_ITERATIONS, RankPlace

RANK = "{rank}"
"""Stands for the rank in ``label`` and in file names, where the process reads its rank from its environment."""


@dataclass(frozen=True)
class MarkedOutput:
    """The lines of a program's standard output that end its iterations.

    ``pattern`` is a regular expression, and is found in each of them; the first ``iterations`` of them go to
    ``span_log``, whose ``header`` says who the program is, and whose 0 is CLOCK_MONOTONIC's ``epoch_ns``. Raises
    ValueError naming the field.
    """

    pattern: str
    span_log: str
    header: RankPlace
    iterations: int = 1
    epoch_ns: int = 0

    def __post_init__(self) -> None:
        if not os.path.isabs(self.span_log):
            raise ValueError(f"span_log: {self.span_log!r} is no absolute path")
        if not 1 <= self.iterations <= MAX_ITERATIONS:
            raise ValueError(f"iterations: {self.iterations} is not from 1 to {MAX_ITERATIONS}")
        try:
            re.compile(self.pattern)
        except re.error as fault:
            raise ValueError(f"pattern: {self.pattern!r} is no regular expression: {fault}") from None

    def at_rank(self, rank: int, gpu: int) -> "MarkedOutput":
        """Return the marks of that rank."""
        header = replace(self.header, rank=rank, gpu=gpu, pipeline=rank)
        return replace(self, span_log=_filled(self.span_log, rank), header=header)


@dataclass(frozen=True)
class OutputConfig:
    """The files of what a program prints.

    - ``stdout``, ``stderr``: get ``limit_bytes`` at most each. A program that prints more is ended.
    - ``fault``: gets the line which says how the program failed, beside standard error: a launcher between this process
      and the runner may print much more there. None for no such file.

    Raises ValueError naming the field.
    """

    stdout: str
    stderr: str
    limit_bytes: int
    fault: str | None = None

    def __post_init__(self) -> None:
        for name in ("stdout", "stderr", "fault"):
            path = getattr(self, name)
            if path is not None and not os.path.isabs(path):
                raise ValueError(f"{name}: {path!r} is no absolute path")
        if self.limit_bytes < 1:
            raise ValueError(f"limit_bytes: {self.limit_bytes} is below 1")

    def at_rank(self, rank: int) -> "OutputConfig":
        """Return the files of that rank."""
        fault = None if self.fault is None else _filled(self.fault, rank)
        return OutputConfig(_filled(self.stdout, rank), _filled(self.stderr, rank), self.limit_bytes, fault)


@dataclass(frozen=True)
class ProgramConfig:
    """One process of a user's program in one trial, or a program beside them. All paths are absolute.

    - ``label``: what messages call it, like "rank 1 on west-0".
    - ``command``: its words. The first is searched on the PATH of the program's environment, from ``folder``.
    - ``environment``: variables in addition to those of the process that starts it.
    - ``read_only``: whether the program cannot write to ``folder`` and what lies below it.
    - ``marks``: the lines that end iterations, None where none do. Only a program that has a rank has some.
    - ``hook``: the JSON document for the hook in the program's Python: it names its span log as ``log`` and may have a
      ``header``. None without the hook.
    - ``grace_s``: how long after SIGTERM the program may still run.
    - ``parent_pid``: the process that starts this one. All ends when that ends. None for no such tie.
    - ``rank_from_environment``: take rank and GPU from RANK and LOCAL_RANK, as torchrun sets them, and put the rank in
      the place of ``{rank}`` in ``label``, the files of ``output``, the marks' ``span_log`` and the hook's ``log``.

    Raises ValueError naming the field.
    """

    label: str
    command: tuple[str, ...]
    folder: str
    output: OutputConfig
    grace_s: float
    environment: dict[str, str] = field(default_factory=dict)
    read_only: bool = False
    marks: MarkedOutput | None = None
    hook: dict[str, Any] | None = None
    parent_pid: int | None = None
    rank_from_environment: bool = False

    def __post_init__(self) -> None:
        if not self.command or not self.command[0]:
            raise ValueError("command: name a program")
        if not os.path.isabs(self.folder):
            raise ValueError(f"folder: {self.folder!r} is no absolute path")
        for variable, value in self.environment.items():
            if not isinstance(value, str):
                raise ValueError(f"environment.{variable}: {value!r} is no text")
        if self.grace_s < 0:
            raise ValueError(f"grace_s: {self.grace_s} is below 0")
        if self.hook is not None and not os.path.isabs(str(self.hook.get("log", ""))):
            raise ValueError("hook.log: give the absolute path of its span log")

    def at_rank(self, environment: Mapping[str, str]) -> "ProgramConfig":
        """Return the configuration of the rank that ``environment`` states, itself if the rank is not taken from there.

        Raise ValueError if the variables are no numbers.
        """
        if not self.rank_from_environment:
            return self
        rank, gpu = (_number(environment, variable) for variable in ("RANK", "LOCAL_RANK"))
        hook = self.hook
        if hook is not None:
            hook = {**hook, "log": _filled(hook["log"], rank)}
            if "header" in hook:
                hook["header"] = {**hook["header"], "rank": rank, "gpu": gpu, "pipeline": rank}
        return replace(
            self,
            label=_filled(self.label, rank),
            output=self.output.at_rank(rank),
            marks=None if self.marks is None else self.marks.at_rank(rank, gpu),
            hook=hook,
            rank_from_environment=False,
        )

    def write(self, path: Path) -> None:
        """Write the configuration as JSON, readable only by this user: the environment may have secrets."""
        write_config(self, path)


def read_program_config(path: Path) -> ProgramConfig:
    """Read a file of ``ProgramConfig.write``. Raise ValueError, one line with path and field; OSError if unreadable."""
    return read_config(ProgramConfig, path)


def _filled(text: str, rank: int) -> str:
    return text.replace(RANK, str(rank))


def _number(environment: Mapping[str, str], variable: str) -> int:
    value = environment.get(variable, "")
    if not (value.isascii() and value.isdigit()):
        raise ValueError(f"rank_from_environment: {variable} is {value!r}, which is no number")
    return int(value)
