"""Keep rows of whole numbers in little memory, a few added at a time."""

import struct
from array import array
from collections.abc import Callable
from functools import lru_cache
from typing import Final

_MOST: Final = (1 << 63) - 1


class NumberRows:
    """Whole numbers of 64 bits, row after row. What has been added last waits until ``batch`` numbers can be packed."""

    __slots__ = ("_append", "_batch", "_pack_batch", "_packed", "_waiting")

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._pack_batch = _packing(batch)
        self._packed: array[int] = array("q")
        self._append = self._packed.frombytes
        self._waiting: list[int] = []

    def __len__(self) -> int:
        """Return how many numbers there are."""
        return len(self._packed) + len(self._waiting)

    @property
    def numbers(self) -> "array[int]":
        """All numbers, in the machine's order of bytes. It may be changed, and rows added behind."""
        self._pack()
        return self._packed

    def extend(self, row: tuple[int, ...]) -> None:
        """Add a row. Raise OverflowError if a number is beyond 64 bits, TypeError if it is none."""
        self._pack()
        self._packed.extend(row)

    def add_stretch(self, start_ns: int, end_ns: int, size_bytes: int) -> None:
        """Add a row of three numbers, of which the first is not above the second. Raise OverflowError as ``extend``."""
        if end_ns > _MOST or size_bytes > _MOST:
            raise OverflowError
        waiting = self._waiting
        waiting.append(start_ns)
        waiting.append(end_ns)
        waiting.append(size_bytes)
        if len(waiting) >= self._batch:
            self._pack()

    def add_span(
        self, rank: int, kind: int, iteration: int, microbatch: int, *, start_ns: int, end_ns: int, size: int, peer: int
    ) -> None:
        """Add a row of eight numbers, whose times are in order. Raise OverflowError as ``extend``."""
        if end_ns > _MOST or size > _MOST:
            raise OverflowError
        waiting = self._waiting
        waiting.append(rank)
        waiting.append(kind)
        waiting.append(iteration)
        waiting.append(microbatch)
        waiting.append(start_ns)
        waiting.append(end_ns)
        waiting.append(size)
        waiting.append(peer)
        if len(waiting) >= self._batch:
            self._pack()

    def _pack(self) -> None:
        # Packed in one go they take a small part of the time that ``array.extend`` takes for them.
        waiting = self._waiting
        if waiting:
            pack = self._pack_batch if len(waiting) == self._batch else _packing(len(waiting))
            self._append(pack(*waiting))
            waiting.clear()


@lru_cache
def _packing(count: int) -> Callable[..., bytes]:
    """Return what packs so many numbers."""
    return struct.Struct(f"{count}q").pack
