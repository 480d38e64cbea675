"""The line that carries a channel's bytes: its rate, latency and header overhead."""

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Final, TypeVar

from wanbed.testbed.network import ethernet, goodput

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Defined here, they are plain integers where this module is compiled.
_MTU_BYTES: Final[int] = ethernet.MTU_BYTES
_TCP_OVERHEAD_BYTES: Final[int] = goodput.TCP_OVERHEAD_BYTES
_ETHERNET_HEADER_BYTES: Final[int] = ethernet.ETHERNET_HEADER_BYTES
PAYLOAD_BYTES: Final[int] = _MTU_BYTES - _TCP_OVERHEAD_BYTES
FRAME_BYTES: Final[int] = _MTU_BYTES + _ETHERNET_HEADER_BYTES

_BITS_NS: Final = 8 * 10**9
# Bits x 10^9 that a byte of payload takes with its headers at the usual MTU, and the share of a rate that carries
# payload, reduced: products of up to 62 bits cost least.
_FRAMED_BITS_NS: Final[int] = _BITS_NS * FRAME_BYTES // gcd(_BITS_NS * FRAME_BYTES, PAYLOAD_BYTES)
_PAYLOAD_SHARE: Final[int] = PAYLOAD_BYTES // gcd(_BITS_NS * FRAME_BYTES, PAYLOAD_BYTES)

Bytes = TypeVar("Bytes", int, "npt.NDArray[np.int64]")


@dataclass(frozen=True)
class Line:
    """A path from one host to another. ``rate_bps`` counts whole frames and is None if unlimited.

    With ``headers``, a byte of payload takes ``frame_bytes / payload_bytes`` bytes on the wire, 1514/1448 at the usual
    MTU (see ``wanbed.testbed.network.goodput``). ``back_ns`` is the latency of the other direction, over which
    acknowledgements return; None if the same.
    """

    rate_bps: int | None
    latency_ns: int
    headers: bool
    back_ns: int | None = None
    mtu_bytes: int = _MTU_BYTES

    def __reduce__(self) -> tuple[type["Line"], tuple[int | None, int, bool, int | None, int]]:
        """Copy and pickle by what defines a line, also where the class is compiled."""
        return Line, (self.rate_bps, self.latency_ns, self.headers, self.back_ns, self.mtu_bytes)

    @property
    def payload_bytes(self) -> int:
        """The payload of a full segment."""
        return self.mtu_bytes - _TCP_OVERHEAD_BYTES

    @property
    def frame_bytes(self) -> int:
        """The bytes of a full frame on the wire."""
        return self.mtu_bytes + _ETHERNET_HEADER_BYTES

    @property
    def return_ns(self) -> int:
        """The latency of what returns to the sender."""
        return self.latency_ns if self.back_ns is None else self.back_ns

    @property
    def rtt_ns(self) -> int:
        """The latencies of both directions."""
        return self.latency_ns + self.return_ns

    def duration_ns(self, payload_bytes: int, rate_bps: int | None = None) -> int:
        """Return the time (ns) to send ``payload_bytes``, rounded up, at ``rate_bps`` (default: the line's rate)."""
        rate_bps = self.rate_bps if rate_bps is None else rate_bps
        if rate_bps is None:
            return 0
        if self.headers:
            if self.mtu_bytes == _MTU_BYTES:
                return -(-payload_bytes * _FRAMED_BITS_NS // (rate_bps * _PAYLOAD_SHARE))
            return -(-payload_bytes * _BITS_NS * self.frame_bytes // (rate_bps * self.payload_bytes))
        return -(-payload_bytes * _BITS_NS // rate_bps)

    def wire_bytes(self, payload_bytes: Bytes) -> Bytes:
        """Return the bytes on the wire for ``payload_bytes``, rounded down."""
        # In two parts, because the product of all bytes would overflow 64 bits.
        segment_bytes = self.payload_bytes
        header_bytes = self.frame_bytes - segment_bytes
        whole, rest = payload_bytes // segment_bytes, payload_bytes % segment_bytes
        headers = whole * header_bytes + rest * header_bytes // segment_bytes
        return payload_bytes + headers if self.headers else payload_bytes

    def payload_per_rtt(self) -> int:
        """Return the payload bytes that the line carries in a round trip, rounded up; 0 if its rate is unlimited."""
        if self.rate_bps is None:
            return 0
        share = self.payload_bytes / self.frame_bytes if self.headers else 1.0
        return int(self.rate_bps * share * self.rtt_ns / _BITS_NS) + 1
