"""Call wanbed as its users do: in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

WANBED = [sys.executable, "-m", "wanbed.runner.cli.command_line"]

BUSY_OR_NOT: frozenset[int] = frozenset({0, 1})
"""Status 1 as well: that links were outside tolerance, as on a busy machine, in tests that look at something else."""


def wanbed(
    *arguments: object,
    status: int | Container[int] = 0,
    timeout_s: float = 600.0,
    **options: Any,
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end and return what it printed. Fail with its errors if it ends with another status."""
    done = subprocess.run(
        [*WANBED, *map(str, arguments)], capture_output=True, text=True, timeout=timeout_s, check=False, **options
    )
    assert done.returncode in ({status} if isinstance(status, int) else status), done.stderr
    return done


def printed(*arguments: object, status: int | Container[int] = 0, **options: Any) -> dict[str, Any]:
    """Run a command to its end and return the document that it prints with ``--json``."""
    document: dict[str, Any] = json.loads(wanbed(*arguments, "--json", status=status, **options).stdout)
    return document


def stored(command: str, text: str, folder: Path, *options: object, status: int | Container[int] = 0) -> Path:
    """Run or simulate an experiment, whose file is written into ``folder``, and return the folder of the run."""
    file = folder / "experiment.yaml"
    file.write_text(text, encoding="utf-8")
    arguments = [command, file, "--runs", folder / command, *options, "--json"]
    return Path(json.loads(wanbed(*arguments, status=status).stdout)["run"])
