"""End every command with its exit status, and with one line on standard error for an error."""

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer

from ground.shown_text import one_line
from ground.strict_model import InputError
from runner.runs.faults import BAD_INPUT, FORESEEN, MACHINE_LACKS, STATUS


class Terminated(BaseException):
    """Raised when SIGTERM or SIGHUP arrives. ``number`` is the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def fail(message: str, status: int, *more: str) -> NoReturn:
    """Print each message as one line to standard error, and exit with ``status``."""
    for line in (message, *more):
        print(f"wanbed: {one_line(line)}", file=sys.stderr)
    raise typer.Exit(status)


def _notes(fault: BaseException) -> list[str]:
    return getattr(fault, "__notes__", [])


def _with_notes(line: str, fault: BaseException) -> str:
    """Return the line, followed by the notes that were added to the error."""
    return "; ".join((line, *_notes(fault)))


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Report each expected error of the block in one line and exit with its status. Others keep their traceback.

    An InputError has a line for each mistake.

    A file or folder that cannot be used counts as bad input. SIGTERM and SIGHUP unwind the block like an interrupt from
    the keyboard, so that everything is cleaned up.
    """

    def unwind(number: int, _: FrameType | None) -> NoReturn:
        raise Terminated(number)

    previous = {number: signal.signal(number, unwind) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except InputError as refusal:
        first, *others = (*refusal.mistakes, *_notes(refusal))
        fail(first, BAD_INPUT, *others)
    except FORESEEN as fault:
        fail(_with_notes(str(fault), fault), next(status for kind, status in STATUS if isinstance(fault, kind)))
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != "mininet":
            raise
        fail(
            "Mininet is not installed, and only a simulation does without: ./setup.sh, or pip install mininet",
            MACHINE_LACKS,
        )
    except KeyboardInterrupt as interrupt:
        fail(_with_notes("interrupted, nothing of it is left running", interrupt), 128 + signal.SIGINT)
    except Terminated as end:
        fail(_with_notes("terminated, nothing of it is left running", end), 128 + end.number)
    except BrokenPipeError:
        # The reader of standard output has gone. Redirect it, so that flushing the buffer at exit does not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(128 + signal.SIGPIPE) from None
    except OSError as fault:
        if fault.filename is None and fault.errno != errno.ENOSPC:
            raise
        line = f"{fault.filename or 'standard output'}: {fault.strerror}: give another place, or make room"
        fail(_with_notes(line, fault), BAD_INPUT)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
