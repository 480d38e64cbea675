"""Keep idle processors awake while a network's packets are timed.

A processor that sleeps takes 0.1 to 0.5 ms to wake up, more the longer it slept, and a packet waits for several of
them on its way. The kernel's documentation calls the interface ``power/pm_qos_interface``: while a process holds
``/dev/cpu_dma_latency`` open, no idle state is entered whose exit takes longer than the microseconds written to it. The
request ends with the process at the latest.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DEVICE = Path("/dev/cpu_dma_latency")
_AT_ONCE_US = 0


@contextmanager
def prompt_wakeups(device: Path = _DEVICE) -> Iterator[bool]:
    """Keep every processor awake inside the block; yield whether the kernel does so, which takes root."""
    try:
        request = os.open(device, os.O_WRONLY)
    except OSError:
        yield False
        return
    try:
        os.write(request, struct.pack("i", _AT_ONCE_US))
        yield True
    finally:
        os.close(request)
