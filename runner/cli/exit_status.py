"""End every command with its exit status, and print lines that are no results to standard error: an error is one."""

import errno
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer

from wanbed.ground.errors import InputError, MissingError, one_line
from wanbed.runner.runs.faults import BAD_INPUT, MACHINE_LACKS, NO_DATA, status_of

DEBUG = "WANBED_DEBUG"
"""The environment variable that adds a traceback to every error, unless it is empty or 0."""

_LACKS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
_INTERRUPTED = "interrupted, nothing of it is left running"
_LEAST_BYTES = 800_000 * 1024
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system", _BLAS_THREADS: "1"}
"""Arrow's own pool reserves a GiB, and OpenBLAS a buffer for each core."""


def log(line: str) -> None:
    """Print a line that is no result to standard error, whatever characters are in the names in it."""
    print(f"wanbed: {one_line(line)}", file=sys.stderr, flush=True)


class Terminated(BaseException):
    """Raised when SIGTERM or SIGHUP arrives. ``number`` is the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def fail(message: str, status: int, *more: str) -> NoReturn:
    """Print each message as one line to standard error, and exit with ``status``."""
    if _debugging():
        _print_traceback(sys.exc_info()[1])
    for line in (message, *more):
        log(line)
    raise typer.Exit(status)


def _debugging() -> bool:
    return os.environ.get(DEBUG, "0") not in {"", "0"}


def _print_traceback(fault: BaseException | None) -> None:
    """Print an error with all that it came from, the causes that ``raise ... from None`` hides included."""
    if fault is None:
        return
    cause: BaseException | None = fault
    while cause is not None:
        cause.__suppress_context__ = cause.__cause__ is not None
        cause = cause.__cause__ or cause.__context__
    traceback.print_exception(fault)


def _notes(fault: BaseException) -> list[str]:
    return getattr(fault, "__notes__", [])


def _with_notes(line: str, fault: BaseException) -> str:
    """Return the line, followed by the notes that were added to the error."""
    return "; ".join((line, *_notes(fault)))


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Report each expected error of the block in one line and exit with its status.

    Any other is a fault of this program: its traceback is printed, and the status is that of a command without data.

    An InputError has a line for each mistake.

    A file or folder that cannot be used counts as bad input. SIGTERM and SIGHUP unwind the block like an interrupt from
    the keyboard, so that everything is cleaned up.
    """

    def unwind(number: int, _: FrameType | None) -> NoReturn:
        raise Terminated(number)

    handlers: dict[signal.Signals, Callable[[int, FrameType | None], object]] = {
        signal.SIGTERM: unwind,
        signal.SIGHUP: unwind,
    }
    # Before the block an interrupt ends the process on the spot, and a shell may have had it ignored for good.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        handlers[signal.SIGINT] = signal.default_int_handler
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    except KeyboardInterrupt as interrupt:
        fail(_with_notes(_INTERRUPTED, interrupt), 128 + signal.SIGINT)
    except Terminated as end:
        fail(_with_notes("terminated, nothing of it is left running", end), 128 + end.number)
    except BrokenPipeError:
        # The reader of standard output has gone. Redirect it, so that flushing the buffer at exit does not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(128 + signal.SIGPIPE) from None
    except typer.Exit:
        raise
    except Exception as fault:
        _fail(fault, "There is no result")
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def reporting(*runs: Path) -> Iterator[None]:
    """Say, should this program itself fail in the block, that the report failed, and in which folders the runs are."""
    try:
        yield
    except (typer.Exit, BrokenPipeError):
        raise
    except Exception as fault:
        _fail(fault, f"The report failed, what was run is in {', '.join(map(str, runs))}")


def fit_address_space() -> None:
    """Do nothing where no limit is set. Raise MissingError if it is too low for any command."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit_bytes == resource.RLIM_INFINITY:
        return
    if limit_bytes < _LEAST_BYTES:
        raise MissingError(
            f"wanbed takes {_LEAST_BYTES >> 10} KiB of address space, ulimit -v allows {limit_bytes >> 10}: raise it"
        )
    for name, value in _FRUGAL.items():
        os.environ.setdefault(name, value)


def leave_cores() -> None:
    """Have OpenBLAS start no threads, unless the user says otherwise.

    numpy starts one for each core as it is imported. Each waits for work, busily for tens of milliseconds, of which
    neither a simulation nor a report has any.
    """
    os.environ.setdefault(_BLAS_THREADS, "1")


def _lack(fault: Exception) -> str:
    """Return what this process may not have more of, and by which limit."""
    if isinstance(fault, OSError) and fault.errno in {errno.EMFILE, errno.ENFILE}:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"too many open files ({fault}): ulimit -n allows {soft}, raise it"
    text = f" ({fault})" if str(fault) else ""
    return f"memory or threads ran out{text}: make room, give fewer --jobs, or raise ulimit -v and ulimit -u"


def _fail(fault: Exception, left: str) -> NoReturn:
    """End the command for an error. For a fault of this program the last line says what is ``left`` of its work."""
    _fail_if_expected(fault)
    if not _debugging():
        _print_traceback(fault)
    fail(f"this is a fault of wanbed itself: please report the lines above. {left}", NO_DATA)


def _fail_if_expected(fault: Exception) -> None:
    """End the command for an expected error. Return for any other."""
    if isinstance(fault, InputError):
        first, *others = (*fault.mistakes, *_notes(fault))
        fail(first, BAD_INPUT, *others)
    # Python wraps one that arrives while a class is made, and pydantic names one that arrives while it makes a model.
    named = type(fault).__name__ == "SchemaError" and "KeyboardInterrupt" in str(fault)
    if named or isinstance(fault.__cause__, KeyboardInterrupt):
        fail(_with_notes(_INTERRUPTED, fault), 128 + signal.SIGINT)
    if isinstance(fault, ModuleNotFoundError) and (fault.name or "").partition(".")[0] == "mininet":
        fail(
            "Mininet is not installed, and only a simulation does without: ./setup.sh, or pip install mininet",
            MACHINE_LACKS,
        )
    if isinstance(fault, ModuleNotFoundError) and (fault.name or "").partition(".")[0] == "distutils":
        fail(
            "Mininet imports distutils, which Python 3.12 and later do not have: pip install setuptools", MACHINE_LACKS
        )
    if isinstance(fault, MemoryError) or (isinstance(fault, OSError) and fault.errno in _LACKS):
        fail(_with_notes(_lack(fault), fault), MACHINE_LACKS)
    if (status := status_of(fault)) is not None:
        fail(_with_notes(str(fault), fault), status)
    if isinstance(fault, OSError) and (fault.filename is not None or fault.errno == errno.ENOSPC):
        line = f"{fault.filename or 'standard output'}: {fault.strerror}: give another place, or make room"
        fail(_with_notes(line, fault), BAD_INPUT)
