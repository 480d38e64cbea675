"""Set the timer slack: how late the kernel may wake a sleeping thread."""

from wanbed.workloads.prctl import prctl

_PR_SET_TIMERSLACK = 29


def wake_precisely() -> None:
    """Set the calling thread's timer slack to 1 ns.

    By default the kernel may wake it up to 50 us late, to wake several threads at once. Raise OSError if the kernel
    refuses.
    """
    prctl(_PR_SET_TIMERSLACK, 1, "PR_SET_TIMERSLACK")
