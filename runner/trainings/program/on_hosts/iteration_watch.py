"""Follow the iterations that a program's ranks log, while it runs."""

import json
from collections.abc import Mapping
from pathlib import Path

from wanbed.results.records.span_log import ITERATION

_PIECE_BYTES = 2**20


class IterationWatch:
    """Counts the iterations that each rank has ended, from the span logs that appear in a folder.

    ``logs`` are the files that ranks may write, by rank.
    """

    def __init__(self, logs: Mapping[int, Path]) -> None:
        self._logs = dict(logs)
        self._read_bytes = dict.fromkeys(logs, 0)
        self._partial = dict.fromkeys(logs, b"")
        self.ended: dict[int, int] = {}
        self.complete: set[int] = set()

    @property
    def total(self) -> int:
        """The number of iterations that all ranks together have ended."""
        return sum(self.ended.values())

    @property
    def all_complete(self) -> bool:
        """Whether every rank that has marked an iteration has ended its last one; False while none has."""
        return bool(self.ended) and self.complete == set(self.ended)

    @property
    def slowest(self) -> int | None:
        """The rank that has ended the fewest iterations, the first of several; None if all have ended as many."""
        counts = {rank: self.ended.get(rank, 0) for rank in self._logs}
        fewest = min(counts.values())
        return None if fewest == max(counts.values()) else min(rank for rank in counts if counts[rank] == fewest)

    def look(self) -> None:
        """Read what has been logged since the last look."""
        for rank, path in self._logs.items():
            try:
                with path.open("rb") as log:
                    log.seek(self._read_bytes[rank])
                    while piece := log.read(_PIECE_BYTES):
                        self._read_bytes[rank] += len(piece)
                        *lines, self._partial[rank] = (self._partial[rank] + piece).split(b"\n")
                        for line in lines:
                            self._take(rank, line)
            except FileNotFoundError:
                continue

    def _take(self, rank: int, line: bytes) -> None:
        self.ended.setdefault(rank, 0)
        entry = json.loads(line)
        if entry == {"complete": True}:
            self.complete.add(rank)
        elif isinstance(entry, list) and entry[0] == ITERATION:
            self.ended[rank] += 1
