"""A process of ours on a host: one file configures it, it dies with its parent, and one line says why it failed."""

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar


def prctl(option: int, value: int, name: str) -> None:
    """Set one option of this process or thread. Raise OSError, with the name of the option, if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({name})")


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


_PR_SET_PDEATHSIG = 1


class ParentEndedError(RuntimeError):
    """The process that started this one has ended already."""


def die_with_parent(parent_pid: int) -> None:
    """Let the kernel kill this process when ``parent_pid``, its parent, ends.

    The kernel does so when the thread that started this process ends, so that thread must live as long as this process
    is needed. Raise ParentEndedError if the parent has already ended or is another process, OSError if the kernel
    refuses.
    """
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, "PR_SET_PDEATHSIG")
    if os.getppid() != parent_pid:
        raise ParentEndedError(f"its parent is not process {parent_pid}: that one has ended")


_PR_SET_TIMERSLACK = 29


def wake_precisely() -> None:
    """Set the calling thread's timer slack to 1 ns.

    By default the kernel may wake it up to 50 us late, to wake several threads at once. Raise OSError if the kernel
    refuses.
    """
    prctl(_PR_SET_TIMERSLACK, 1, "PR_SET_TIMERSLACK")
