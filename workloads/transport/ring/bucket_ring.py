"""All-reduce buckets of gradients one after the other, in a thread beside the one that still computes."""

from collections.abc import Callable

from wanbed.workloads.transport.event import Event, PartReceived, PartSent, SegmentReceived, SegmentsSent
from wanbed.workloads.transport.ring.ring import Add, RingAllReduce
from wanbed.workloads.transport.summing_thread import SumEvents, SummingThread


class BucketRing(SummingThread):
    """The all-reduces of one rank over its ring, as ``SummingThread`` has them."""

    def __init__(
        self,
        ring: RingAllReduce,
        events: SumEvents,
        element_bytes: int,
        add: Add,
        report: Callable[[Event], None],
    ) -> None:
        def run(number: int, data: memoryview, await_event: Callable[[], None]) -> int:
            ring.run(number, data, element_bytes, add, await_event)
            return ring.replicas

        def handle(event: SegmentReceived | SegmentsSent | PartReceived | PartSent) -> None:
            assert isinstance(event, SegmentReceived | SegmentsSent)
            ring.handle(event)

        super().__init__(run, handle, events, report)
