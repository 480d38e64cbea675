"""Cut a transfer into chunks, and stripe the chunks over node pairs."""

from wanbed.workloads.transport.frames.frame import CHUNK_BYTES

_SMALL_CHUNK_BYTES = 16 * 1024
_CHUNKS_WANTED = 16
"""So many chunks a node pair keep scatter, WAN and gather busy at once. Smaller chunks cost more than they gain."""
_CHUNKS_A_CONNECTION = 4
"""With so many chunks a connection, faster connections can carry more of them than slower ones."""


class Cutting:
    """The chunks of a transfer of ``total_bytes``. Chunk i goes over node pair i mod ``node_pairs``.

    Chunk sizes differ by one byte at most, and none exceeds ``CHUNK_BYTES``. Every node pair has the same number of
    chunks, which its ``connections`` carry. With fewer bytes than node pairs, each byte is a chunk. Chunks are
    computed, not listed, so that a transfer of any size takes no memory.
    """

    def __init__(self, total_bytes: int, node_pairs: int, connections: int = 1) -> None:
        needed = -(-total_bytes // (node_pairs * CHUNK_BYTES))
        wanted = max(_CHUNKS_WANTED, _CHUNKS_A_CONNECTION * connections)
        wanted = min(wanted, total_bytes // node_pairs // _SMALL_CHUNK_BYTES)
        self.total_bytes = total_bytes
        self.node_pairs = node_pairs
        self.chunks = min(total_bytes, max(needed, wanted) * node_pairs)
        self.largest_bytes = -(-total_bytes // self.chunks)

    def chunks_of(self, node_pair: int) -> range:
        """Return the indices of the chunks that go over a node pair, 0 for the DP-cell's first pipeline."""
        return range(node_pair, self.chunks, self.node_pairs)

    def chunk(self, index: int) -> tuple[int, int]:
        """Return the offset and length of a chunk."""
        offset = self._offset(index)
        return offset, self._offset(index + 1) - offset

    def index(self, offset: int, length: int) -> int | None:
        """Return the index of the chunk with that offset and length, None if there is none."""
        index = -(-offset * self.chunks // self.total_bytes)
        return index if 0 <= index < self.chunks and self.chunk(index) == (offset, length) else None

    def _offset(self, index: int) -> int:
        return self.total_bytes * index // self.chunks
