"""Queues of the chunks that wait to go over a link. Each kind of queue decides when its next chunk may go."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from wanbed.workloads.transport.frame import FrameError, FrameHeader


class Source(Protocol):
    """The sender of a chunk. The link calls it while the chunk is sent."""

    def begun(self) -> None:
        """Handle that the chunk's first byte is about to be offered to the kernel."""

    def accepted(self) -> None:
        """Handle that the kernel has accepted the chunk's last byte, so that its memory may be used again."""


@dataclass(slots=True)
class QueuedChunk:
    """A frame with a payload that is to be sent."""

    header: FrameHeader
    payload: memoryview
    source: Source


class ChunkQueue:
    """Chunks, first in first out."""

    def __init__(self) -> None:
        self._chunks: deque[QueuedChunk] = deque()

    @property
    def empty(self) -> bool:
        """Return whether no chunk waits in the queue."""
        return not self._chunks

    @property
    def ready(self) -> bool:
        """Return whether ``pop`` has a chunk to return."""
        return bool(self._chunks)

    @property
    def head(self) -> QueuedChunk:
        """The chunk that ``pop`` would return."""
        return self._chunks[0]

    def add(self, chunk: QueuedChunk) -> None:
        """Queue a chunk."""
        self._chunks.append(chunk)

    def pop(self) -> QueuedChunk:
        """Remove and return the next chunk, which the caller sends now."""
        return self._chunks.popleft()


class CreditQueue(ChunkQueue):
    """Chunks for a peer that holds them for a while. At most a window of them is at the peer or on its way there.

    No chunk is ready until ``resize`` sets the window. With a window from the beginning none is ready until the peer
    gives credit for it.
    """

    def __init__(self, window: int = 0) -> None:
        super().__init__()
        self._window = window
        self._credit = 0

    @property
    def ready(self) -> bool:
        """Return whether there is a chunk, and credit to send it."""
        return self._credit > 0 and bool(self._chunks)

    def pop(self) -> QueuedChunk:
        """Remove and return the next chunk, which the caller sends now, and use one credit."""
        self._credit -= 1
        return self._chunks.popleft()

    def grant(self, chunks: int) -> None:
        """Add credit for chunks that the peer has used, or waits for. Raise FrameError if it is beyond the window."""
        self._credit += chunks
        if self._credit > self._window:
            raise FrameError(f"it gives credit for {self._credit - self._window} chunks more than it was sent")

    def resize(self, window: int) -> None:
        """Set the window: how many chunks may be at the peer or on their way there."""
        self._credit += window - self._window
        self._window = window


class RelayQueue(CreditQueue):
    """Chunks for a peer that relays them. The first credit that the peer gives sets the window."""

    def grant(self, chunks: int) -> None:
        """Set the window by the first credit, later add credit. Raise FrameError if the peer was sent fewer."""
        if self._window:
            super().grant(chunks)
        else:
            self.resize(chunks)


class TurnQueue(ChunkQueue):
    """Chunks of transfers in a planned order, the same in every iteration.

    ``turns`` are (pipeline, microbatch). A transfer begins once all ``chunks_a_turn`` chunks of the transfer before it
    have begun, not ended. So a connection that is done with its chunk does not wait for a slower one that is still
    sending the last chunk. The first turns are those of ``first_iteration``.
    """

    def __init__(self, turns: Sequence[tuple[int, int]], chunks_a_turn: int, first_iteration: int = 0) -> None:
        super().__init__()
        self._turns = turns
        self._first_iteration = first_iteration
        self._chunks_a_turn = chunks_a_turn
        self._waiting: dict[tuple[int, int, int], deque[QueuedChunk]] = {}
        self._done = 0
        self._begun = 0

    @property
    def empty(self) -> bool:
        """Return whether no chunk waits in the queue, whatever its turn."""
        return not self._chunks and not self._waiting

    def add(self, chunk: QueuedChunk) -> None:
        """Queue a chunk. It is ready when its transfer's turn has come."""
        header = chunk.header
        key = header.iteration, header.owner, header.number
        if key == self._turn():
            self._chunks.append(chunk)
        else:
            self._waiting.setdefault(key, deque()).append(chunk)

    def pop(self) -> QueuedChunk:
        """Remove and return the next chunk, which the caller sends now. The last of a transfer begins the next turn."""
        chunk = self._chunks.popleft()
        self._begun += 1
        if self._begun == self._chunks_a_turn:
            self._begun = 0
            self._done += 1
            self._chunks = self._waiting.pop(self._turn(), deque())
        return chunk

    def _turn(self) -> tuple[int, int, int]:
        iteration, position = divmod(self._done, len(self._turns))
        return self._first_iteration + iteration, *self._turns[position]
