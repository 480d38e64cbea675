"""Let a thread go on at a time to within some 100 us, also while others compute.

Three things make a thread late: the kernel's slack for timers, other threads that want the processor, and the time that
a sleeping processor, or a sleeping gateway guest, takes to wake. Against them the thread has a slack of 1 ns, a
real-time priority, and wakes a millisecond early to watch the clock.
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from wanbed.testbed.kernel.inside import in_virtual_time

_PR_SET_TIMERSLACK, _SLACK_NS = 29, 1
_SWITCH_S = 0.0005
"""The time for which another thread of this process may compute before the punctual one goes on."""
_EARLY_NS = 1_000_000
_PRIORITY = 1
"""The lowest real-time priority: above all that have none."""


@contextmanager
def punctual() -> Iterator[bool]:
    """Make this thread a punctual one within the block. Yield whether its priority is a real-time one.

    Without the right to that (CAP_SYS_NICE, or RLIMIT_RTPRIO) the thread keeps its priority.
    """
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _SLACK_NS, 0, 0, 0)
    try:
        yield _with_real_time_priority()
    finally:
        sys.setswitchinterval(switch_s)


def _with_real_time_priority() -> bool:
    try:
        # 0 is this thread, not this process.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except PermissionError:
        return False
    return True


def wait_until(time_ns: int, stopped: threading.Event) -> bool:
    """Return False at a time of the monotonic clock, or True as soon as ``stopped`` is set.

    In virtual time the clock does not move while a thread watches it, and a sleep ends exactly when it should.
    """
    early_ns = 0 if in_virtual_time() else _EARLY_NS
    if stopped.wait((time_ns - early_ns - time.monotonic_ns()) / 1e9):
        return True
    while (left_ns := time_ns - time.monotonic_ns()) > 0:
        if early_ns == 0:
            # A wait may end a rounding error early.
            if stopped.wait(left_ns / 1e9):
                return True
        elif stopped.is_set():
            return True
    return False
