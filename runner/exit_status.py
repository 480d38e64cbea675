"""End every command: with its exit status, and with one line on standard error for whatever went wrong."""

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer

from results.run_store import RunError
from runner.dilation import CapacityError
from runner.document import one_line
from runner.simulator.deadlock import SimulationError
from testbed.cleaning import CleaningError
from testbed.gateway_programming import ReadBackError
from testbed.measurement import MeasurementError
from testbed.strict_model import InputError
from testbed.substrate.probe import MissingError
from testbed.substrate.substrate import SubstrateError
from testbed.virtual_time.guest import GuestError

DONE = 0
OUTSIDE_TOLERANCE = 1
REGRESSED = 1
GUEST_STUCK = 1
BAD_INPUT = 2
NOT_COMPARABLE = 3
NO_DATA = 4
MACHINE_LACKS = 5


class TrialError(Exception):
    """A trial did not come to its end; the message is one line with the cause."""


class Terminated(BaseException):
    """A signal asks this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (InputError, BAD_INPUT),
    (RunError, BAD_INPUT),
    (SimulationError, BAD_INPUT),
    (MissingError, MACHINE_LACKS),
    (CapacityError, MACHINE_LACKS),
    (TrialError, NO_DATA),
    (MeasurementError, NO_DATA),
    (SubstrateError, NO_DATA),
    (ReadBackError, NO_DATA),
    (CleaningError, NO_DATA),
    (GuestError, GUEST_STUCK),
)

FORESEEN = tuple(kind for kind, _ in _STATUS)
"""Errors that end a command in one line; anything else is a fault of this program."""


def fail(message: str, status: int) -> NoReturn:
    """Print one line to standard error, whatever the message holds, and end with ``status``."""
    print(f"wanbed: {one_line(message)}", file=sys.stderr)
    raise typer.Exit(status)


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Turn every foreseen failure of the block into one line and its exit status; others keep their traceback.

    A file or folder that cannot be used is bad input. A polite end (SIGTERM, SIGHUP) unwinds the block like an
    interrupt from the keyboard, so that nothing stays behind.
    """

    def unwind(number: int, _: FrameType | None) -> NoReturn:
        raise Terminated(number)

    previous = {number: signal.signal(number, unwind) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except FORESEEN as fault:
        fail(str(fault), next(status for kind, status in _STATUS if isinstance(fault, kind)))
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != "mininet":
            raise
        fail(
            "Mininet is not installed, and only a simulation does without: ./setup.sh, or pip install mininet",
            MACHINE_LACKS,
        )
    except KeyboardInterrupt:
        fail("interrupted, nothing of it is left running", 128 + signal.SIGINT)
    except Terminated as end:
        fail("told to end, nothing of it is left running", 128 + end.number)
    except BrokenPipeError:
        # Whoever read standard output has gone; what is still buffered for it must not fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(128 + signal.SIGPIPE) from None
    except OSError as fault:
        if fault.filename is None and fault.errno != errno.ENOSPC:
            raise
        fail(f"{fault.filename or 'standard output'}: {fault.strerror}: give another place, or make room", BAD_INPUT)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
