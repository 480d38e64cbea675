"""What every all-reduce over the transport's connections is to the rank that takes part in it."""

from collections.abc import Callable
from typing import Protocol

from wanbed.workloads.transport.event import SegmentReceived, SegmentsSent

Add = Callable[[memoryview, memoryview], None]
"""Adds the second bytes to the first ones, element by element; both are whole elements."""


class AllReduce(Protocol):
    """One rank's side of an all-reduce. Only the thread that sums calls it."""

    @property
    def replicas(self) -> int:
        """The number of replicas."""

    def handle(self, event: SegmentReceived | SegmentsSent) -> None:
        """Handle an event from the rank's queue. Keep events that come before their ``run``."""

    def run(
        self, iteration: int, data: memoryview, element_bytes: int, add: Add, await_event: Callable[[], None]
    ) -> None:
        """Sum ``data``, writable and contiguous, over all replicas, in place.

        ``await_event`` waits for one event of the rank's queue and handles it, one of the sums by ``handle``. Its
        errors end the run. After the return the transport no longer uses ``data``. Every replica must call this once an
        iteration, with the same iteration, size and element size. Where there are several all-reduces in an iteration,
        ``iteration`` counts them instead. Raise ValueError if the data cannot be cut, TransportError if another replica
        sends a chunk that does not fit.
        """
