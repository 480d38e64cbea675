"""Run a process of a testbed that one file configures, and let one line on stderr say why it failed."""

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

Config = TypeVar("Config")


def run_configured(
    arguments: Sequence[str],
    *,
    module: str,
    name: str,
    read: Callable[[Path], Config],
    run: Callable[[Config], None],
    faults: tuple[type[Exception], ...] = (),
    named: Callable[[Config], str] | None = None,
) -> int:
    """Read the configuration file, the only one of ``arguments``, and run the process. Return its exit status, 0 or 1.

    What it raises becomes one line on stderr that begins with the process's name: ``named(config)`` once the file is
    read, before that ``name``. ``faults`` are expected beside ValueError, OSError and RuntimeError; anything else is a
    defect, whose traceback comes first.
    """
    expected: tuple[type[Exception], ...] = (*faults, ValueError, OSError, RuntimeError)
    if len(arguments) != 1:
        print_line(name, f"usage: python -m {module} CONFIG.json")
        return 1
    try:
        config = read(Path(arguments[0]))
        if named is not None:
            name = named(config)
        run(config)
    except expected as fault:
        print_line(name, str(fault))
        return 1
    except Exception as defect:
        traceback.print_exc()
        print_line(name, f"{type(defect).__name__}: {defect}")
        return 1
    return 0


def print_line(name: str, line: str) -> None:
    """Print a line of a process on stderr, after its name."""
    print(f"{name}: {line}", file=sys.stderr, flush=True)
