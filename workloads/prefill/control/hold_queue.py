"""Hold requests until memory and capacity are available."""

from heapq import heappop, heappush

from wanbed.workloads.prefill.control.outcome import RequestRecord


class HoldQueue:
    """At most ``limit`` requests in order of arrival. Each waits only as long as it could still meet the SLO."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[int, RequestRecord] = {}
        self._last_starts: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._held)

    @property
    def full(self) -> bool:
        """Whether no further request may wait."""
        return len(self._held) >= self._limit

    @property
    def first(self) -> RequestRecord | None:
        """The request that has waited longest, None if none waits."""
        return next(iter(self._held.values()), None)

    def add(self, record: RequestRecord, last_start_ns: int) -> None:
        """Hold a request, which misses the SLO if it is admitted after ``last_start_ns``."""
        self._held[record.number] = record
        heappush(self._last_starts, (last_start_ns, record.number))

    def remove(self, record: RequestRecord) -> None:
        """Remove a request from the queue."""
        del self._held[record.number]

    def expired(self, now_ns: int) -> list[RequestRecord]:
        """Remove and return the requests whose last start is before ``now_ns``."""
        gone = []
        while self._last_starts and self._last_starts[0][0] < now_ns:
            record = self._held.pop(heappop(self._last_starts)[1], None)
            if record is not None:
                gone.append(record)
        return gone
