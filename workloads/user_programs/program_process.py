"""One process of a user's program: ``python -m wanbed.workloads.user_programs.program_process CONFIG.json``.

Start the program, save what it prints, mark its iterations if its output does, and end with its exit status, or with
128 + the number of the signal that ended it. If it fails, the last line on standard error says how. No process that it
has started is left, whatever ends first: the program, this process or the one that started this process. For that,
this process only keeps a second one, which watches the program; each of them ends all if the other is killed.
"""

import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from wanbed.workloads.host_process import die_with_parent
from wanbed.workloads.user_programs.program_config import ProgramConfig, read_program_config
from wanbed.workloads.user_programs.program_watch import (
    NOT_WATCHED,
    ProgramFailedError,
    WatchedProgram,
    adopt_descendants,
    kill_descendants,
)

_ENDING = (signal.SIGTERM, signal.SIGINT)


def main(arguments: list[str]) -> int:
    """Run the program configured by the file named on the command line. Return the exit status."""
    label = "wanbed program"
    if len(arguments) != 1:
        return _failed(
            f"{label}: usage: python -m wanbed.workloads.user_programs.program_process CONFIG.json", NOT_WATCHED
        )
    try:
        config = read_program_config(Path(arguments[0])).at_rank(os.environ)
        label = config.label
        if config.parent_pid is not None:
            die_with_parent(config.parent_pid)
        adopt_descendants()
        return _keep(config)
    except (ValueError, OSError, RuntimeError) as fault:
        return _failed(f"{label}: {fault}", NOT_WATCHED)


def _keep(config: ProgramConfig) -> int:
    """Start the watching process, pass SIGTERM on to it, and return its exit status."""
    keeper = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    watcher = os.fork()
    if watcher == 0:
        _watch(config, keeper)

    def end(*_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(watcher, signal.SIGTERM)

    for number in _ENDING:
        signal.signal(number, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    code = os.waitstatus_to_exitcode(os.waitpid(watcher, 0)[1])
    if code >= 0:
        return code
    kill_descendants()
    return _program_failed(config, f": the process that watched it was ended by signal {-code}", NOT_WATCHED)


def _watch(config: ProgramConfig, keeper: int) -> NoReturn:
    """Watch the program in this process, and exit with its status."""
    status = NOT_WATCHED
    try:
        # Ctrl-C at a terminal reaches the parent, which passes it on once.
        os.setsid()
        status = WatchedProgram(config, keeper).run()
    except ProgramFailedError as failure:
        status = _program_failed(config, str(failure), failure.status)
    except Exception as defect:
        traceback.print_exc()
        _program_failed(config, f": {type(defect).__name__}: {defect}", NOT_WATCHED)
    finally:
        os._exit(status)


def _program_failed(config: ProgramConfig, how: str, status: int) -> int:
    line = f"{config.label}{how}"
    if (fault := config.output.fault) is not None:
        with suppress(OSError):
            Path(fault).write_text(f"{line}\n", encoding="utf-8", errors="replace")
    return _failed(line, status)


def _failed(line: str, status: int) -> int:
    # The disk may be full: the status is then all there is.
    with suppress(OSError):
        os.write(sys.stderr.fileno(), f"{line}\n".encode(errors="replace"))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
