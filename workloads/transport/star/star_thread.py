"""Sum over a star in a thread beside the one that computes, as ``workloads.transport.ring.bucket_ring`` does it."""

from collections.abc import Callable

from workloads.transport.event import Event, PartReceived, PartSent, SegmentReceived, SegmentsSent
from workloads.transport.star.star_sum import StarSums
from workloads.transport.summing.summing_thread import SumEvents, SummingThread


class StarThread(SummingThread):
    """The sums of one rank over its star, from number ``first`` on."""

    def __init__(self, star: StarSums, events: SumEvents, report: Callable[[Event], None], *, first: int = 0) -> None:
        def handle(event: SegmentReceived | SegmentsSent | PartReceived | PartSent) -> None:
            assert isinstance(event, PartReceived | PartSent)
            star.handle(event)

        super().__init__(star.run, handle, events, report, first)
