"""Tie a process to the process that started it."""

import os
import signal

from wanbed.workloads.prctl import prctl

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
