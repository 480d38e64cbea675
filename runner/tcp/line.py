"""Describe the line that carries a channel's bytes: how fast they leave, and how long they are under way."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from testbed.network.goodput import TCP_OVERHEAD_BYTES
from testbed.network.shared_rate import ETHERNET_HEADER_BYTES, MTU_BYTES

PAYLOAD_BYTES = MTU_BYTES - TCP_OVERHEAD_BYTES
FRAME_BYTES = MTU_BYTES + ETHERNET_HEADER_BYTES

_BITS_NS = 8 * 10**9

Bytes = TypeVar("Bytes", int, npt.NDArray[np.int64])


@dataclass(frozen=True)
class Line:
    """A path between two hosts; ``rate_bps`` counts frames, None is unlimited.

    With ``headers``, a byte of payload takes 1514/1448 of a byte on the wire, as ``testbed.network.goodput`` has it.
    """

    rate_bps: int | None
    latency_ns: int
    headers: bool

    def duration_ns(self, payload_bytes: int, rate_bps: int | None = None) -> int:
        """Return how long so much payload takes to leave, rounded up, at the line's rate or the one given."""
        rate_bps = self.rate_bps if rate_bps is None else rate_bps
        if rate_bps is None:
            return 0
        if self.headers:
            return -(-payload_bytes * _BITS_NS * FRAME_BYTES // (rate_bps * PAYLOAD_BYTES))
        return -(-payload_bytes * _BITS_NS // rate_bps)

    def wire_bytes(self, payload_bytes: Bytes) -> Bytes:
        """Return how many bytes that is on the wire, rounded down."""
        # In two parts, since the product of all bytes would not fit in 64 bits.
        header_bytes = FRAME_BYTES - PAYLOAD_BYTES
        whole, rest = payload_bytes // PAYLOAD_BYTES, payload_bytes % PAYLOAD_BYTES
        headers = whole * header_bytes + rest * header_bytes // PAYLOAD_BYTES
        return payload_bytes + headers if self.headers else payload_bytes

    def payload_per_rtt(self) -> int:
        """Return the payload that the line carries in a round trip, rounded up; 0 where its rate is unlimited."""
        if self.rate_bps is None:
            return 0
        share = PAYLOAD_BYTES / FRAME_BYTES if self.headers else 1.0
        return int(self.rate_bps * share * 2 * self.latency_ns / _BITS_NS) + 1
