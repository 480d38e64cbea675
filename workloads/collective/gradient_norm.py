"""The gradient norm: the all-reduce of one number over all ranks, for which every optimizer step waits.

A training that clips gradients by their global norm cannot change any weight before all gradients are known. The number
is the sum of the squares of the rank's own gradients, where its back end computes them, and 0 otherwise. Nothing is
clipped, so that losses are those of a training that does not wait.
"""

import struct
import time
from collections.abc import Callable

from wanbed.results.records.span_log import NO_MICROBATCH, NORM, Span
from wanbed.workloads.transport.event import SegmentReceived, SegmentsSent
from wanbed.workloads.transport.links_config import NORM_BYTES, LinksConfig
from wanbed.workloads.transport.ring.ring import RingAllReduce
from wanbed.workloads.transport.striped_transport import StripedTransport

_NUMBER = struct.Struct("=f")


class GradientNorm:
    """One rank's side of the all-reduce, over the ring ``norm_ring`` of the configuration.

    ``squares`` returns the sum of the squares of the rank's gradients once they are complete, None for none.
    """

    def __init__(self, config: LinksConfig, transport: StripedTransport, squares: Callable[[], float] | None) -> None:
        self._ring = RingAllReduce(config, transport, of_norm=True)
        self._number = len(config.rings)
        self._squares = squares

    def owns(self, event: SegmentReceived | SegmentsSent) -> bool:
        """Return whether an event is one of this ring."""
        return event.ring == self._number

    def handle(self, event: SegmentReceived | SegmentsSent) -> None:
        """Handle an event of this ring."""
        self._ring.handle(event)

    def await_all(self, iteration: int, await_event: Callable[[], None]) -> Span:
        """Return the span of the all-reduce, which ends when the numbers of all ranks are summed here.

        ``await_event`` is as for ``RingAllReduce.run``.
        """
        start_ns = time.monotonic_ns()
        number = bytearray(_NUMBER.pack(0.0 if self._squares is None else self._squares()))
        self._ring.run(iteration, memoryview(number), NORM_BYTES, _add, await_event)
        return Span(NORM, iteration, NO_MICROBATCH, start_ns, time.monotonic_ns(), NORM_BYTES)


def _add(total: memoryview, part: memoryview) -> None:
    _NUMBER.pack_into(total, 0, _NUMBER.unpack_from(total)[0] + _NUMBER.unpack_from(part)[0])
