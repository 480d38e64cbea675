"""Wake a selector with microsecond precision, because epoll's timeout has a resolution of one millisecond."""

import ctypes
import os

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Time), ("value", _Time))


class PreciseTimer:
    """A timerfd. Any thread may set it; the last setting counts. Raises OSError if the kernel refuses."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def fileno(self) -> int:
        """Return the descriptor, which is readable from the set time until ``passed`` is called."""
        return int(self._descriptor)

    def set(self, at_ns: int) -> None:
        """Wake the selector at the CLOCK_MONOTONIC time ``at_ns``, at once if it is in the past."""
        seconds, nanoseconds = divmod(max(1, at_ns), 1_000_000_000)
        setting = _Setting(value=_Time(seconds, nanoseconds))
        if self._libc.timerfd_settime(self._descriptor, _ABSOLUTE, ctypes.byref(setting), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def passed(self) -> None:
        """Clear the wake-up. The descriptor is not readable until the timer has been set again."""
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)
