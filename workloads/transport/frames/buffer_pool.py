"""A pool of receive buffers."""

import mmap
from collections.abc import Callable


class BufferPool:
    """Buffers of anonymous memory, by size. The one given back last is reused first, so that little memory is touched.

    ``take`` and ``give_back`` may be called by different threads.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[memoryview]] = {}
        self._make: Callable[[int], memoryview | None] = lambda size_bytes: None

    def prefer(self, make: Callable[[int], memoryview | None]) -> None:
        """Make new buffers by ``make(size_bytes)``, unless it returns None. Call it before the first ``take``."""
        self._make = make

    def take(self, size_bytes: int) -> memoryview:
        """Return a writable buffer of that size. It still has the contents of its last use."""
        try:
            return self._free.setdefault(size_bytes, []).pop()
        except IndexError:
            made = self._make(size_bytes)
            return (
                made
                if made is not None
                else memoryview(mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            )

    def give_back(self, buffer: memoryview) -> None:
        """Return the buffer to the pool. The caller must not use it again."""
        self._free.setdefault(buffer.nbytes, []).append(buffer)
