"""Set how late the kernel may wake a thread that sleeps."""

import ctypes

_PR_SET_TIMERSLACK = 29


def wake_precisely() -> None:
    """Have the kernel wake the calling thread as soon as its sleep is over.

    By default it may take 50 us more, to wake several at once. Raises OSError if the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_TIMERSLACK)")
