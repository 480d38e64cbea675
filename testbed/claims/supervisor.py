"""End the processes of a testbed once their owner has gone, however it went: a process killed by SIGKILL ends no other.

The supervisor is a process of its own. It waits at a pipe whose other end is open in the owner alone, and the kernel
closes that end with the owner. A process that the owner has forked holds it too, until it becomes its own program. So
at the end of the pipe every process of the testbed has its mark. As a program: ``supervisor VARIABLE VALUE [ROOT]``.
"""

import os
import subprocess
import sys
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from wanbed.module_process import module_command
from wanbed.testbed.claims.piped_process import PipedProcess
from wanbed.testbed.claims.processes import MARKER, SUPERVISED, marked_processes

_STARTED, _DISMISSED = b"started\n", b"dismissed\n"
_END_S, _LOOK_S = 10.0, 0.01


class Supervisor(AbstractContextManager["Supervisor"]):
    """A supervisor of this process for the duration of a ``with`` block, and beyond it unless it is dismissed.

    ``variable`` and ``value`` are in the environment of every process to end. With ``root`` the supervisor also
    releases the claim of the testbed ``value``. With ``orphaned`` it is no child of this process: some programs, Ray's
    workers among them, kill all their children when they end. Raise RuntimeError if it does not start.
    """

    def __init__(self, value: str, variable: str = MARKER, root: Path | None = None, *, orphaned: bool = False) -> None:
        roots = [] if root is None else [str(root.resolve())]
        environment = {name: text for name, text in os.environ.items() if name != variable}
        self._value, self._orphaned = value, orphaned
        program = module_command("wanbed.testbed.claims.supervisor", variable, value, *roots)
        self._process = PipedProcess(
            ["setsid", "--fork", *program] if orphaned else program,
            {**environment, SUPERVISED: value},
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        # Its start takes time of a processor, which must not be missing when the network is measured.
        with self._process.stdout as started:
            if started.read(len(_STARTED)) != _STARTED:
                raise RuntimeError(f"the supervisor of {value} did not start: status {self._process.wait()}")
        if orphaned:
            self._process.wait()

    def __exit__(self, *_: object) -> None:
        """Let the supervisor do its work now, unless it was dismissed."""
        self._process.stdin.close()

    def dismiss(self) -> None:
        """End the supervisor: nothing is left to end."""
        if not self._orphaned:
            self._process.close()
            return
        # It may have been killed.
        with suppress(BrokenPipeError):
            self._process.stdin.write(_DISMISSED)
            self._process.stdin.close()
        deadline_s = time.monotonic() + _END_S
        while marked_processes(self._value, SUPERVISED) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)


def main(arguments: list[str]) -> None:
    """Wait for the end of standard input, then end the processes and release the claim, unless it was dismissed."""
    variable, value, *roots = arguments
    # The owner may have gone already.
    with suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), _STARTED)
    if sys.stdin.buffer.read():
        return
    # Only now: while a testbed is up, its supervisor must cost nothing.
    from wanbed.testbed.claims.cleaning import end_processes  # noqa: PLC0415
    from wanbed.testbed.claims.registry import claims  # noqa: PLC0415

    end_processes(value, variable)
    for root in roots:
        for claim in claims(Path(root)):
            if claim.record.identifier == value:
                claim.release()


if __name__ == "__main__":
    main(sys.argv[1:])
