"""Queue the chunks that wait to go over a link, in lanes that decide their order."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from workloads.transport.frames.frame import FrameError, FrameHeader


class Source(Protocol):
    """The sender of a chunk, which is called as the chunk goes."""

    def begun(self) -> None:
        """Handle that the chunk's first byte is about to be offered to the kernel."""

    def accepted(self) -> None:
        """Handle that the kernel has accepted the chunk's last byte, so that its memory is free."""


@dataclass(slots=True)
class Chunk:
    """A frame to be sent."""

    header: FrameHeader
    payload: memoryview
    source: Source


class ChunkQueue:
    """Chunks in the order in which they came."""

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()

    @property
    def empty(self) -> bool:
        """Whether nothing waits here."""
        return not self._chunks

    @property
    def ready(self) -> bool:
        """Whether ``pop`` has a chunk to return."""
        return bool(self._chunks)

    @property
    def head(self) -> Chunk:
        """The chunk that ``pop`` would return."""
        return self._chunks[0]

    def add(self, chunk: Chunk) -> None:
        """Queue a chunk."""
        self._chunks.append(chunk)

    def pop(self) -> Chunk:
        """Take out the next chunk, which is now to be sent."""
        return self._chunks.popleft()


class CreditQueue(ChunkQueue):
    """Chunks for a peer that keeps them for a while. At most a window of them are there or on their way.

    The lane is closed until ``resize`` gives it a window.
    """

    def __init__(self) -> None:
        super().__init__()
        self._window = 0
        self._credit = 0

    @property
    def ready(self) -> bool:
        """Whether there is a chunk, and room for it at the peer."""
        return self._credit > 0 and bool(self._chunks)

    def pop(self) -> Chunk:
        """Take out the next chunk, which is now to be sent."""
        self._credit -= 1
        return self._chunks.popleft()

    def grant(self, chunks: int) -> None:
        """Add credit for chunks that the peer has used. Raises FrameError if it never had so many."""
        self._credit += chunks
        if self._credit > self._window:
            raise FrameError(f"it gives credit for {self._credit - self._window} chunks more than it was sent")

    def resize(self, window: int) -> None:
        """Let so many chunks be at the peer from now on."""
        self._credit += window - self._window
        self._window = window


class RelayQueue(CreditQueue):
    """Chunks for a peer that relays them: the first credit that it gives is its window."""

    def grant(self, chunks: int) -> None:
        """Open the lane with the first credit, or add credit. Raises FrameError if the peer never had so many."""
        if self._window:
            super().grant(chunks)
        else:
            self.resize(chunks)


class TurnQueue(ChunkQueue):
    """Chunks of transfers in a planned order, the same every iteration.

    A transfer begins only once all ``chunks_a_turn`` chunks of the one before have begun. So a connection that has sent
    its part does not wait for a slower one that still has the last chunk.
    """

    def __init__(self, turns: Sequence[tuple[int, int]], chunks_a_turn: int) -> None:
        super().__init__()
        self._turns = turns
        self._chunks_a_turn = chunks_a_turn
        self._waiting: dict[tuple[int, int, int], deque[Chunk]] = {}
        self._done = 0
        self._begun = 0

    @property
    def empty(self) -> bool:
        """Whether nothing waits here."""
        return not self._chunks and not self._waiting

    def add(self, chunk: Chunk) -> None:
        """Queue a chunk; it goes when its transfer's turn has come."""
        header = chunk.header
        key = header.iteration, header.owner, header.number
        if key == self._turn():
            self._chunks.append(chunk)
        else:
            self._waiting.setdefault(key, deque()).append(chunk)

    def pop(self) -> Chunk:
        """Take out the next chunk, now to be sent. After a transfer's last one the next turn begins."""
        chunk = self._chunks.popleft()
        self._begun += 1
        if self._begun == self._chunks_a_turn:
            self._begun = 0
            self._done += 1
            self._chunks = self._waiting.pop(self._turn(), deque())
        return chunk

    def _turn(self) -> tuple[int, int, int]:
        iteration, position = divmod(self._done, len(self._turns))
        return iteration, *self._turns[position]
