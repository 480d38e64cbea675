"""Infer from each packet's delay how many bytes it found queued at the bottleneck."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wanbed.runner.learnt_links.fit.bottleneck_rate import Bottleneck
from wanbed.runner.learnt_links.logs.packet_log import PacketLog

Floats = npt.NDArray[np.float64]

_NOISE_DEVIATIONS = 3
_IDLE_MODES = 3
"""The delays that an idle queue shows reach so far, in multiples of the commonest: whatever carries it has to wake."""
_MOST_PACKETS = 2
"""The largest tolerance: beyond it a queue is no noise."""
_LEAST_TOLERANCE = 0.02
"""As a fraction of a packet: below it a backlog is rounding."""
_SHARP = 0.1
_LEAST_EMPTY, _LEAST_EMPTY_PART = 5, 0.02
"""The fewest packets that find a queue empty which ever is, and the fewest of all that arrive."""


@dataclass(frozen=True)
class Backlogs:
    """The backlog that each arrived packet found at the bottleneck, in the order of sending.

    ``found_bytes`` is the backlog before a packet of ``size_bytes``. It includes the rest of the packet in service. A
    packet found the queue empty if its ``found_bytes`` are at most ``tolerance_bytes``, which is the noise in the
    times. It certainly did if they are at most ``sharp_bytes``, a limit that takes nothing else for noise.
    """

    at_ns: Floats
    size_bytes: Floats
    found_bytes: Floats
    ns_per_byte: float
    tolerance_bytes: float
    sharp_bytes: float

    @property
    def found_empty(self) -> int:
        """The number of packets that found the queue empty, or as good as empty."""
        return int(np.sum(self.found_bytes <= self.sharp_bytes))

    @property
    def ever_empty(self) -> bool:
        """True if enough packets found the queue empty: fewer may have found the least in one that never was."""
        return self.found_empty >= max(_LEAST_EMPTY, _LEAST_EMPTY_PART * len(self.found_bytes))

    def queued_bytes(self, at_ns: int) -> float:
        """Return what the queue holds at a time before or after all packets, if nothing else comes in between.

        Before them it is what the first one found, and what has been served since.
        """
        if at_ns <= self.at_ns[0]:
            found = float(self.found_bytes[0])
            return found + (self.at_ns[0] - at_ns) / self.ns_per_byte if found > self.tolerance_bytes else 0.0
        return max(0.0, float(self.left_bytes[-1] - (at_ns - self.at_ns[-1]) / self.ns_per_byte))

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
    noise_bytes = _NOISE_DEVIATIONS * bottleneck.noise_ns / bottleneck.ns_per_byte
    tolerance_bytes = max(
        _LEAST_TOLERANCE * packet, noise_bytes, min(_IDLE_MODES * _commonest(alone), _MOST_PACKETS * packet)
    )
    sharp_bytes = max(_SHARP * packet, noise_bytes)
    return Backlogs(at_ns, size_bytes, found, bottleneck.ns_per_byte, tolerance_bytes, sharp_bytes)


def _commonest(values: Floats) -> float:
    """Return the middle of the shortest interval that holds one value in twenty, and five at least. Zero with fewer."""
    within = max(_LEAST_EMPTY, len(values) // 20)
    if len(values) < within:
        return 0.0
    ordered = np.sort(values)
    start = int(np.argmin(ordered[within - 1 :] - ordered[: len(ordered) - within + 1]))
    return float(np.median(ordered[start : start + within]))
