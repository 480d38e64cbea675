"""Cut a transfer into chunks, and deal the chunks to the node pairs that share it."""

from workloads.transport.frames.frame import CHUNK_BYTES

_SMALL_CHUNK_BYTES = 16 * 1024
_CHUNKS_WANTED = 16
"""So many chunks a share keep scatter, WAN and gather busy at the same time; smaller ones cost more than they bring."""
_CHUNKS_A_CONNECTION = 4
"""So many chunks for each connection let the faster connections carry more of them than the slower ones."""


class Cutting:
    """Chunks of ``total_bytes``, equal to one byte, dealt round over ``shares``: chunk i belongs to share i mod shares.

    Every share has the same number of chunks, each of ``CHUNK_BYTES`` at most, unless there are fewer bytes than
    shares; then each byte is a chunk. The ``connections`` of a node pair carry the chunks of its share. Nothing is
    listed: a transfer of any size takes no memory.
    """

    def __init__(self, total_bytes: int, shares: int, connections: int = 1) -> None:
        needed = -(-total_bytes // (shares * CHUNK_BYTES))
        wanted = max(_CHUNKS_WANTED, _CHUNKS_A_CONNECTION * connections)
        wanted = min(wanted, total_bytes // shares // _SMALL_CHUNK_BYTES)
        self.total_bytes = total_bytes
        self.shares = shares
        self.chunks = min(total_bytes, max(needed, wanted) * shares)
        self.largest_bytes = -(-total_bytes // self.chunks)

    def share(self, position: int) -> range:
        """Return the indices of the chunks that go over the node pair of the cell's pipeline at ``position``."""
        return range(position, self.chunks, self.shares)

    def chunk(self, index: int) -> tuple[int, int]:
        """Return the offset and length of a chunk."""
        offset = self._offset(index)
        return offset, self._offset(index + 1) - offset

    def index(self, offset: int, length: int) -> int | None:
        """Return the index of the chunk at that offset and of that length, None if there is none."""
        index = -(-offset * self.chunks // self.total_bytes)
        return index if 0 <= index < self.chunks and self.chunk(index) == (offset, length) else None

    def _offset(self, index: int) -> int:
        return self.total_bytes * index // self.chunks
