"""Page-locked buffers in host memory, made ahead and used again and again."""

from torch import Tensor

from wanbed.workloads.compute.device.device_runtime import DeviceRuntime

_MOST_RESERVED_BYTES = 1 << 30


class PinnedBuffers:
    """Buffers by size, of any number of threads. ``take`` makes one only if none of its size is free.

    Making one takes milliseconds, during which the GPU may idle. So ``reserve`` makes them before they are needed.
    """

    def __init__(self, runtime: DeviceRuntime) -> None:
        self._runtime = runtime
        self._free: dict[int, list[Tensor]] = {}

    def reserve(self, size_bytes: int, count: int) -> None:
        """Make ``count`` free buffers of that size, but no more than fit into 1 GiB."""
        if size_bytes:
            made = [self._runtime.pinned(size_bytes) for _ in range(min(count, _MOST_RESERVED_BYTES // size_bytes))]
            self._free.setdefault(size_bytes, []).extend(made)

    def take(self, size_bytes: int) -> Tensor:
        """Return a flat tensor of that many bytes. It still has the contents of its last use."""
        try:
            return self._free.setdefault(size_bytes, []).pop()
        except IndexError:
            return self._runtime.pinned(size_bytes)

    def give_back(self, buffer: Tensor) -> None:
        """Take the buffer back. The caller must not use it again."""
        self._free.setdefault(buffer.nbytes, []).append(buffer)
