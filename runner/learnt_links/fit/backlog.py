"""Infer from each packet's delay how many bytes it found queued at the bottleneck."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runner.learnt_links.fit.bottleneck_rate import Bottleneck
from runner.learnt_links.logs.packet_log import PacketLog

Floats = npt.NDArray[np.float64]

_NOISE_DEVIATIONS = 3
_IDLE_MODES = 3
"""The delays that an idle queue shows reach so far, in multiples of the commonest: whatever carries it has to wake."""
_MOST_PACKETS = 2
"""The largest tolerance: beyond it a queue is no noise."""
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
    at_ns = log.send_ns[arrived].astype(np.float64)
    found = np.maximum((log.delay_ns - base_delay_ns) / bottleneck.ns_per_byte - size_bytes, 0.0)
    own_left = found[:-1] + size_bytes[:-1] - np.diff(at_ns) / bottleneck.ns_per_byte
    alone = found[1:][own_left < 0]
    packet = float(np.median(size_bytes))
    noise_bytes = max(
        _LEAST_TOLERANCE * packet,
        _NOISE_DEVIATIONS * bottleneck.noise_ns / bottleneck.ns_per_byte,
        min(_IDLE_MODES * _commonest(alone), _MOST_PACKETS * packet),
    )
    return Backlogs(at_ns, size_bytes, found, bottleneck.ns_per_byte, noise_bytes)


def _commonest(values: Floats) -> float:
    """Return the half-sample mode: the shortest half of the values, halved again until two are left.

    Source: Robertson and Cryer, "An iterative procedure for estimating the mode", JASA 1974. Zero without values.
    """
    ordered = np.sort(values)
    while len(ordered) > 2:
        half = -(-len(ordered) // 2)
        widths = ordered[half - 1 :] - ordered[: len(ordered) - half + 1]
        start = int(np.argmin(widths))
        ordered = ordered[start : start + half]
    return float(ordered.mean()) if len(ordered) else 0.0
