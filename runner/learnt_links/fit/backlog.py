"""Infer from each packet's delay how many bytes it found queued at the bottleneck."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runner.learnt_links.fit.bottleneck_rate import Bottleneck
from runner.learnt_links.logs.packet_log import PacketLog

Floats = npt.NDArray[np.float64]

_NOISE_DEVIATIONS = 3
_LEAST_TOLERANCE = 0.02
"""As a fraction of a packet: below it a backlog is rounding."""


@dataclass(frozen=True)
class Backlogs:
    """What the packets that arrived found at the bottleneck, in the order of sending.

    ``found_bytes`` is the backlog before a packet of ``size_bytes``, the one in service included as far as it is left.
    A packet found the queue empty if that is at most ``tolerance_bytes``, which is the noise in the times.
    """

    at_ns: Floats
    size_bytes: Floats
    found_bytes: Floats
    ns_per_byte: float
    tolerance_bytes: float

    @property
    def left_bytes(self) -> Floats:
        """The backlog with the packet itself."""
        return np.asarray(self.found_bytes + self.size_bytes)


def backlogs(log: PacketLog, bottleneck: Bottleneck, base_delay_ns: float) -> Backlogs:
    """Return the backlogs of a log whose bottleneck and base delay are known."""
    arrived = log.arrived
    size_bytes = log.size_bytes[arrived].astype(np.float64)
    found = (log.delay_ns - base_delay_ns) / bottleneck.ns_per_byte - size_bytes
    noise_bytes = _NOISE_DEVIATIONS * bottleneck.noise_ns / bottleneck.ns_per_byte
    return Backlogs(
        log.send_ns[arrived].astype(np.float64),
        size_bytes,
        np.maximum(found, 0.0),
        bottleneck.ns_per_byte,
        max(_LEAST_TOLERANCE * float(np.median(size_bytes)), noise_bytes),
    )
