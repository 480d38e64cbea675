"""Sum buffers one after the other over all replicas, in a thread beside the one that still computes."""

import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from wanbed.workloads.transport.event import (
    BucketSummed,
    Event,
    Failed,
    PartReceived,
    PartSent,
    SegmentReceived,
    SegmentsSent,
)

SumEvents = SimpleQueue[SegmentReceived | SegmentsSent | PartReceived | PartSent | Failed]
"""Takes from the transport the events of a ring or a star, and Failed, which ends the sums."""

Payload = Callable[[], memoryview]
"""Waits until a buffer's bytes are in host memory, and returns them, writable."""

Sum = Callable[[int, memoryview, Callable[[], None]], int]
"""Sums a buffer in place, the sums counted from 0, and returns how many replicas' buffers the sum is of.

The last argument waits for one event and handles it.
"""


class SummingThread:
    """The sums of one rank. ``complete`` queues a buffer; the thread sums the buffers in that order.

    The sums of all iterations are counted from 0, and every replica queues the same buffers, from number ``first`` on.
    ``handle`` handles an
    event of ``events``. ``report`` is called from the thread, with BucketSummed at the end of each sum, or with Failed.
    """

    def __init__(
        self,
        run: Sum,
        handle: "Callable[[SegmentReceived | SegmentsSent | PartReceived | PartSent], None]",
        events: SumEvents,
        report: Callable[[Event], None],
        first: int = 0,
    ) -> None:
        self._run_sum = run
        self._first = first
        self._handle = handle
        self._events = events
        self._report = report
        self._complete: SimpleQueue[Payload | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="sums", daemon=True)
        self._thread.start()

    def complete(self, payload: Payload) -> None:
        """Queue a buffer that holds its final bytes. Do not use them before BucketSummed."""
        self._complete.put(payload)

    def close(self) -> None:
        """End the thread once all queued buffers are summed."""
        self._complete.put(None)
        self._thread.join()

    def _run(self) -> None:
        number = self._first
        try:
            while (payload := self._complete.get()) is not None:
                data, start_ns = payload(), time.monotonic_ns()
                parts = self._run_sum(number, data, self._handle_next)
                self._report(BucketSummed(start_ns, time.monotonic_ns(), data.nbytes, parts))
                number += 1
        except Exception as fault:
            # No other code sees an error of this thread, and the rank would wait for the sum for ever.
            self._report(Failed(fault))

    def _handle_next(self) -> None:
        event = self._events.get()
        if isinstance(event, Failed):
            raise event.error
        self._handle(event)
