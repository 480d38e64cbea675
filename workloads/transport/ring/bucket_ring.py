"""All-reduce buckets of gradients one after the other, in a thread beside the one that still computes."""

import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from workloads.transport.event import BucketSummed, Event, Failed, SegmentReceived, SegmentsSent
from workloads.transport.ring.ring import Add, RingAllReduce

RingEvents = SimpleQueue[SegmentReceived | SegmentsSent | Failed]
"""Takes from the transport the ring's events, and Failed, which ends the ring."""

Payload = Callable[[], memoryview]
"""Waits until a bucket's bytes are in host memory, and returns them, writable."""


class BucketRing:
    """The all-reduces of one rank. ``complete`` queues a bucket; a thread sums the buckets in that order.

    The all-reduces of all iterations are counted from 0, and every replica queues the same buckets. ``report`` is
    called from the thread, with BucketSummed at the end of each all-reduce, or with Failed.
    """

    def __init__(
        self,
        ring: RingAllReduce,
        events: RingEvents,
        element_bytes: int,
        add: Add,
        report: Callable[[Event], None],
    ) -> None:
        self._events = events
        self._ring = ring
        self._element_bytes = element_bytes
        self._add = add
        self._report = report
        self._complete: SimpleQueue[Payload | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="bucket ring", daemon=True)
        self._thread.start()

    def complete(self, payload: Payload) -> None:
        """Queue a bucket that holds its final gradients. Do not use them before BucketSummed."""
        self._complete.put(payload)

    def close(self) -> None:
        """End the thread once all queued buckets are summed."""
        self._complete.put(None)
        self._thread.join()

    def _run(self) -> None:
        number = 0
        try:
            while (payload := self._complete.get()) is not None:
                data, start_ns = payload(), time.monotonic_ns()
                self._ring.run(number, data, self._element_bytes, self._add, self._handle_next)
                self._report(BucketSummed(start_ns, time.monotonic_ns(), data.nbytes))
                number += 1
        except Exception as fault:
            # No other code sees an error of this thread, and the rank would wait for the sum for ever.
            self._report(Failed(fault))

    def _handle_next(self) -> None:
        event = self._events.get()
        if isinstance(event, Failed):
            raise event.error
        self._ring.handle(event)
