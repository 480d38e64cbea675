"""Sum over a star in a thread beside computation, as ``wanbed.workloads.transport.ring.bucket_ring`` does."""

from collections.abc import Callable

from wanbed.workloads.transport.event import Event, PartReceived, PartSent, SegmentReceived, SegmentsSent
from wanbed.workloads.transport.star.star_sum import StarSums
from wanbed.workloads.transport.summing_thread import SumEvents, SummingThread


class StarThread(SummingThread):
    """The sums of one rank over its star, from number ``first`` on."""

    def __init__(self, star: StarSums, events: SumEvents, report: Callable[[Event], None], *, first: int = 0) -> None:
        def handle(event: SegmentReceived | SegmentsSent | PartReceived | PartSent) -> None:
            assert isinstance(event, PartReceived | PartSent)
            star.handle(event)

        super().__init__(star.run, handle, events, report, first)
