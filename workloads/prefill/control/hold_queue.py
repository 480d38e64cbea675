"""Hold requests until there is memory or capacity for them."""

from heapq import heappop, heappush

from workloads.prefill.control.outcome import RequestRecord


class HoldQueue:
    """At most ``limit`` requests, in the order in which they came. Each waits only while it could still be in time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[int, RequestRecord] = {}
        self._last_starts: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._held)

    @property
    def full(self) -> bool:
        """Whether nothing more may wait."""
        return len(self._held) >= self._limit

    @property
    def first(self) -> RequestRecord | None:
        """The record that has waited longest."""
        return next(iter(self._held.values()), None)

    def add(self, record: RequestRecord, last_start_ns: int) -> None:
        """Let a request wait, which cannot be in time if it is taken in after ``last_start_ns``."""
        self._held[record.number] = record
        heappush(self._last_starts, (last_start_ns, record.number))

    def remove(self, record: RequestRecord) -> None:
        """Take the request out of the queue."""
        del self._held[record.number]

    def expired(self, now_ns: int) -> list[RequestRecord]:
        """Take out and return the requests that have waited too long."""
        gone = []
        while self._last_starts and self._last_starts[0][0] < now_ns:
            record = self._held.pop(heappop(self._last_starts)[1], None)
            if record is not None:
                gone.append(record)
        return gone
