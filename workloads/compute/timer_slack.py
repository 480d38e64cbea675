"""Set the timer slack: how late the kernel may wake a sleeping thread."""

import ctypes

_PR_SET_TIMERSLACK = 29


def wake_precisely() -> None:
    """Set the calling thread's timer slack to 1 ns.

    By default the kernel may wake it up to 50 us late, to wake several threads at once. Raise OSError if the kernel
    refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_TIMERSLACK)")
