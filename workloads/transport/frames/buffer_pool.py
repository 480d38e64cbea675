"""Receive buffers that are used again."""

import mmap
from collections.abc import Callable


class BufferPool:
    """Buffers of anonymous memory, handed out last in, first out, so that little memory is ever touched.

    ``take`` and ``give_back`` may be called by different threads.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[memoryview]] = {}
        self._make: Callable[[int], memoryview | None] = lambda size_bytes: None

    def prefer(self, make: Callable[[int], memoryview | None]) -> None:
        """Let new buffers be the special memory that ``make`` returns for a size, unless it returns None.

        Call it before the first ``take``.
        """
        self._make = make

    def take(self, size_bytes: int) -> memoryview:
        """Return a writable buffer of that size, whose contents are whatever its last user left."""
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
        """Let the next ``take`` of this size have the buffer; the caller must not use it again."""
        self._free.setdefault(buffer.nbytes, []).append(buffer)
