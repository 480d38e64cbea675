"""Call code of another author: an error names its file and line, and a call that does not end is given up.

Only the standard library is used.
"""

import inspect
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType


class EndlessCallError(BaseException):
    """Raised inside a call that takes too long. No ``except Exception`` there catches it."""


OWN_FAULTS = (Exception, SystemExit)
"""The exceptions that another author's code may raise. An interrupt is not among them, because it is the user's."""


def described_import(fault: BaseException, importer: str) -> str:
    """Return the fault of an import as text, with file and line of the imported module. ``importer`` is who imports.

    That is the last line that was running of the first file after the importer's.
    """
    text = f"{type(fault).__name__}: {fault}"
    steps = [(step.filename, step.lineno) for step in traceback.extract_tb(fault.__traceback__)]
    own = [step for step in steps if step[0] != importer and not step[0].startswith("<frozen ")]
    own = [step for step in own if Path(step[0]).parent.name != "importlib"]
    places = [f"{file}:{line}" for file, line in own if file == own[0][0]]
    return f"{text} ({places[-1]})" if places else text


def described(fault: BaseException, kind: type) -> str:
    """Return the fault as text, with file and line where it arose in the source file of the class ``kind``.

    That is the last line of this file that was running. If none was, it is the line that defines the class.
    """
    text = str(fault) if isinstance(fault, EndlessCallError) else f"{type(fault).__name__}: {fault}"
    return f"{text} ({_place(fault, kind)})"


def _place(fault: BaseException, kind: type) -> str:
    file: str | None = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file is None:
        return f"in {kind.__module__}"
    line = None
    trace = fault.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == Path(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    if line is None:
        try:
            line = inspect.getsourcelines(kind)[1]
        except (OSError, TypeError):
            return file
    return f"{file}:{line}"


@dataclass(frozen=True)
class TimeKind:
    """A kind of time that can be limited: its clock, which returns seconds, and the timer and signal of its end."""

    name: str
    clock: Callable[[], float]
    timer: int
    signal: signal.Signals


WALL_CLOCK = TimeKind("wall-clock time", time.monotonic, signal.ITIMER_REAL, signal.SIGALRM)

PROCESSOR = TimeKind("processor time", time.process_time, signal.ITIMER_PROF, signal.SIGPROF)
"""The time for which this process computes, whatever else the machine does. While it waits, none goes by."""


@contextmanager
def time_limit(seconds: float, of: TimeKind = WALL_CLOCK) -> Iterator[None]:
    """Raise EndlessCallError in the block after that time. Without effect outside the main thread.

    In a block that has a limit of the same kind itself, the one that ends earlier counts.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    outer_s, _ = signal.getitimer(of.timer)
    began_s, limit_s = of.clock(), min(seconds, outer_s or seconds)

    def give_up(_: int, __: FrameType | None) -> None:
        left_s = limit_s - (of.clock() - began_s)
        if left_s <= 0:
            raise EndlessCallError(f"it has not returned after {seconds:g} s")
        # The timer of processor time counts whole ticks of the kernel, more than its clock does.
        signal.setitimer(of.timer, left_s)

    previous = signal.signal(of.signal, give_up)
    signal.setitimer(of.timer, limit_s)
    try:
        yield
    finally:
        signal.setitimer(of.timer, 0)
        signal.signal(of.signal, previous)
        if outer_s:
            signal.setitimer(of.timer, max(outer_s - (of.clock() - began_s), 1e-6))


def check_options(function: Callable[..., object], positional: int, options: Mapping[str, object]) -> None:
    """Raise ValueError with the options that ``function`` takes, if ``options`` has another or lacks one.

    Its first ``positional`` parameters are no options.
    """
    parameters = list(inspect.signature(function).parameters.values())[positional:]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    names = [each.name for each in known]
    takes = f"it takes {', '.join(names)}" if names else "it takes none"
    for name in options:
        if name not in names:
            raise ValueError(f"no option {name!r}: {takes}")
    for each in known:
        if each.default is each.empty and each.name not in options:
            raise ValueError(f"the option {each.name!r} is missing: {takes}")
