"""Keep rows of whole numbers in little memory."""

from array import array

from wanbed.ground.compiled_core.native_numbers import i64, vec


class NumberRows:
    """Whole numbers of 64 bits, row after row. Up to ``batch`` numbers that were added last wait to be packed."""

    __slots__ = ("_batch", "_bytes", "_count", "_packed", "_waiting")

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._packed: array[int] = array("q")
        self._waiting: vec[i64] = vec[i64]([])
        self._bytes = memoryview(b"")
        self._count: i64 = 0

    def __len__(self) -> int:
        """Return how many numbers there are."""
        return len(self._packed) + int(self._count)

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
        """Add a row of three numbers. Raise OverflowError as ``extend``."""
        if self._count + 3 > len(self._waiting):
            self._make_room()
        waiting, first = self._waiting, self._count
        waiting[first] = start_ns
        waiting[first + 1] = end_ns
        waiting[first + 2] = size_bytes
        self._count = first + 3

    def add_span(
        self, rank: int, kind: int, iteration: int, microbatch: int, *, start_ns: int, end_ns: int, size: int, peer: int
    ) -> None:
        """Add a row of eight numbers. Raise OverflowError as ``extend``."""
        if self._count + 8 > len(self._waiting):
            self._make_room()
        waiting, first = self._waiting, self._count
        waiting[first] = rank
        waiting[first + 1] = kind
        waiting[first + 2] = iteration
        waiting[first + 3] = microbatch
        waiting[first + 4] = start_ns
        waiting[first + 5] = end_ns
        waiting[first + 6] = size
        waiting[first + 7] = peer
        self._count = first + 8

    def _make_room(self) -> None:
        """Let a row be added to those that wait."""
        if self._count:
            self._pack()
        else:
            waiting = self._waiting = vec[i64]([0] * max(self._batch, 8))
            self._bytes = memoryview(waiting).cast("B")

    def _pack(self) -> None:
        if self._count:
            self._packed.frombytes(self._bytes[: 8 * self._count])
            self._count = 0
