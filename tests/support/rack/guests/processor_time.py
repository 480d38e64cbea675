"""Read the processor's time stamp counter beside the clock of a kernel.

User-Mode Linux guests execute on the processors of this machine, and read the same counter. So it relates the clocks of
two kernels to well below a microsecond, without a network between them.

As a program: steer the kernel's clock by so many parts per million, step its wall clock by so many milliseconds, and
print a reading, as JSON, for each line of the standard input.
"""

import ctypes
import json
import mmap
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

_RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")
"""rdtsc; shl rdx, 32; or rax, rdx; ret"""
_TRIES = 500
_ADJ_FREQUENCY, _ADJ_SETOFFSET, _ADJ_NANO = 0x0002, 0x0100, 0x2000
_SCALED_PPM = 2**16


@dataclass(frozen=True)
class Reading:
    """A moment: the counter, and what CLOCK_MONOTONIC showed then. ``width`` is how exactly, in counts."""

    counter: int
    clock_ns: int
    width: int


class ProcessorTime:
    """Read the counter; on x86-64, the only processors that User-Mode Linux knows."""

    def __init__(self) -> None:
        self._code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._code.write(_RDTSC)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
        self._count = ctypes.CFUNCTYPE(ctypes.c_uint64)(address)

    def read(self) -> Reading:
        """Return the reading that was interrupted least of many."""
        return min((self._read() for _ in range(_TRIES)), key=lambda each: each.width)

    def _read(self) -> Reading:
        before = self._count()
        clock_ns = time.monotonic_ns()
        after = self._count()
        return Reading((before + after) // 2, clock_ns, after - before)


def clock_ns_at(counter: int, readings: Sequence[Reading]) -> float:
    """Return what a clock shows when the counter shows this: on the line through its first and its last reading."""
    first, last = readings[0], readings[-1]
    share = (counter - first.counter) / (last.counter - first.counter)
    return first.clock_ns + share * (last.clock_ns - first.clock_ns)


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        *((name, ctypes.c_long) for name in ("constant", "precision", "tolerance", "sec", "nsec", "tick")),
        ("rest", ctypes.c_byte * 256),
    )


def steer(drift_ppm: float, step_ms: int) -> None:
    """Let the kernel's clocks, the monotonic one too, gain so much; step its wall clock. Raise OSError."""
    seconds, rest_ms = divmod(step_ms, 1000)
    for change in (
        _Timex(modes=_ADJ_FREQUENCY, freq=round(drift_ppm * _SCALED_PPM)),
        _Timex(modes=_ADJ_SETOFFSET | _ADJ_NANO, sec=seconds, nsec=rest_ms * 1_000_000),
    ):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.adjtimex(ctypes.byref(change)) < 0:
            raise OSError(ctypes.get_errno(), "adjtimex")


def main(drift_ppm: str, step_ms: str) -> None:
    steer(float(drift_ppm), int(step_ms))
    processor = ProcessorTime()
    for _ in sys.stdin:
        reading = processor.read()
        print(json.dumps([reading.counter, reading.clock_ns, reading.width]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
