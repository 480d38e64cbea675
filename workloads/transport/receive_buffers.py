"""The memory of incoming transfers: a pool of buffers, in which chunks are assembled."""

import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.transport.event import Event, Received
from wanbed.workloads.transport.frame import Cutting, FrameError, FrameHeader
from wanbed.workloads.transport.peer import Peer


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


@dataclass(slots=True)
class _Arriving:
    payload: memoryview
    start_ns: int
    begun: set[int] = field(default_factory=set)
    complete: int = 0


@dataclass(slots=True)
class _Delivery:
    assembly: "Assembly"
    key: tuple[int, int]
    payload: memoryview

    def complete(self) -> None:
        self.assembly.chunk_complete(self.key)


class Assembly:
    """Assembles the incoming transfers of one boundary, each in one buffer. Chunks may come in any order."""

    def __init__(
        self,
        peer: Peer,
        kind: MessageKind,
        cutting: Cutting,
        pool: BufferPool,
        report: Callable[[Event], None],
    ) -> None:
        self._peer = peer
        self._kind = kind
        self.cutting = cutting
        self._pool = pool
        self._report = report
        self._arriving: dict[tuple[int, int], _Arriving] = {}
        self._arrived: set[tuple[int, int]] = set()

    def place(self, header: FrameHeader, index: int) -> _Delivery:
        """Return the delivery that receives chunk ``index``. Raise FrameError if the chunk came before."""
        key = header.iteration, header.number
        arriving = self._arriving.get(key)
        if key in self._arrived or (arriving is not None and index in arriving.begun):
            raise FrameError(f"it sent the chunk at {header.offset} of the {self._kind} of microbatch {key[1]} twice")
        if arriving is None:
            payload = self._pool.take(self.cutting.total_bytes)
            arriving = self._arriving[key] = _Arriving(payload, time.monotonic_ns())
        arriving.begun.add(index)
        return _Delivery(self, key, arriving.payload[header.offset : header.offset + header.length])

    def chunk_complete(self, key: tuple[int, int]) -> None:
        """Count one more complete chunk of ``key``: iteration and microbatch. Report Received after the last one."""
        arriving = self._arriving[key]
        arriving.complete += 1
        if arriving.complete == self.cutting.chunks:
            del self._arriving[key]
            self._arrived.add(key)
            iteration, microbatch = key
            times_ns = arriving.start_ns, time.monotonic_ns()
            self._report(Received(self._peer, iteration, Message(self._kind, microbatch), *times_ns, arriving.payload))
