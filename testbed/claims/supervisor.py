"""End the processes of a testbed once their owner has gone, however it went: a process killed by SIGKILL ends no other.

The supervisor is a process of its own. It waits at a pipe whose other end is open in the owner alone, and the kernel
closes that end with the owner. A process that the owner has forked holds it too, until it becomes its own program. So
at the end of the pipe every process of the testbed has its mark. As a program: ``supervisor VARIABLE VALUE [ROOT]``.
"""

import os
import subprocess
import sys
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from testbed.claims.processes import MARKER
from wanbed.own_modules import module_command

SUPERVISED = "WANBED_SUPERVISED"
"""Variable in the environment of a supervisor: the mark's value that it looks for."""

_STARTED = b"started\n"


class Supervisor(AbstractContextManager["Supervisor"]):
    """A supervisor of this process for the duration of a ``with`` block, and beyond it unless it is dismissed.

    ``variable`` and ``value`` are in the environment of every process to end. With ``root`` the supervisor also
    releases the claim of the testbed ``value``. Raise RuntimeError if it does not start.
    """

    def __init__(self, value: str, variable: str = MARKER, root: Path | None = None) -> None:
        roots = [] if root is None else [str(root.resolve())]
        environment = {name: text for name, text in os.environ.items() if name != variable}
        self._process = subprocess.Popen(
            module_command("testbed.claims.supervisor", variable, value, *roots),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, SUPERVISED: value},
            cwd="/",
            # Signals to the owner's process group must not end it.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        # Its start takes time of a processor, which must not be missing when the network is measured.
        with self._process.stdout as started:
            if started.read(len(_STARTED)) != _STARTED:
                raise RuntimeError(f"the supervisor of {value} did not start: status {self._process.wait()}")

    def __exit__(self, *_: object) -> None:
        """Let the supervisor do its work now, unless it was dismissed."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def dismiss(self) -> None:
        """End the supervisor: nothing is left to end."""
        self._process.kill()
        self._process.wait()


def main(arguments: list[str]) -> None:
    """Wait for the end of standard input, then end the processes and release the claim."""
    variable, value, *roots = arguments
    # The owner may have gone already.
    with suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), _STARTED)
    sys.stdin.buffer.read()
    # Only now: while a testbed is up, its supervisor must cost nothing.
    from testbed.claims.cleaning import end_processes  # noqa: PLC0415
    from testbed.claims.registry import claims  # noqa: PLC0415

    end_processes(value, variable)
    for root in roots:
        for claim in claims(Path(root)):
            if claim.record.identifier == value:
                claim.release()


if __name__ == "__main__":
    main(sys.argv[1:])
