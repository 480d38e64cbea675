"""Tell a program that was killed from one that has answered."""

import signal
import subprocess

from wanbed.ground.errors import WanbedError


class KilledError(WanbedError):
    """A program that this one has started was killed, so that its end says nothing of the machine. Exit status 4."""


def check_not_killed(ended: "subprocess.CompletedProcess[str] | subprocess.CalledProcessError") -> None:
    """Raise KilledError, one line with the program and the signal, if a signal has ended the program."""
    if ended.returncode >= 0:
        return
    command = ended.cmd if isinstance(ended, subprocess.CalledProcessError) else ended.args
    name = signal.Signals(-ended.returncode).name
    raise KilledError(f"{command[0]}: ended by {name} while it tried what this machine can do: call again")
