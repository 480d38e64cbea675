"""Estimate the rate of a link's bottleneck from packets that queued behind one another, and its base delay.

Two packets of a flow of which the second arrived at the queue before the first had left it come out one service time
apart if nothing came between them (packet pairs: Keshav, "A control-theoretic approach to flow control", SIGCOMM 1991).
Cross traffic between them makes the distance longer, by whole packets, so the lowest strong mode of time per byte is
the bottleneck's (Dovrolis, Ramanathan and Moore, "What do packet dispersion techniques measure?", INFOCOM 2001). Noise
in the times matters less the longer a span of packets is, and cross traffic more: of spans of 1, 2, 4 and 8 packets,
those are used whose mode is sharpest.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wanbed.ground.strict_model import InputError
from wanbed.runner.learnt_links.logs.packet_log import PacketLog

Floats = npt.NDArray[np.float64]

LEAST_SPANS = 20
"""The fewest packets that queued behind one another from which a rate is estimated."""

_SPANS = (1, 2, 4, 8)
_WINDOW = 0.02
"""Half the width of a mode, as a fraction of it."""
_SHARP_PAIRS, _AGREEING = 0.15, 1.25
"""Where so many of the pairs are alike, a longer span's mode is at most so many times theirs: one beyond has a packet
of others in it."""
_DEVIATIONS = 3
"""Of a mode's share of the spans: of few, many may be alike by chance."""
_STRONG = 0.25
"""A mode counts if it has this fraction of the strongest one's packets: fewer are a burst that a shaper lets pass."""


@dataclass(frozen=True)
class Bottleneck:
    """A bottleneck's time for a byte, the deviation of one packet's time, and the number of spans behind it."""

    ns_per_byte: float
    noise_ns: float
    spans: int

    @property
    def rate_bps(self) -> float:
        """Its rate."""
        return 8e9 / self.ns_per_byte


def fit_bottleneck(log: PacketLog) -> Bottleneck:
    """Return the bottleneck of a log. Raise InputError if too few packets queued behind one another."""
    arrived = log.arrived
    send_ns, arrival_ns = log.send_ns[arrived], log.arrival_ns[arrived]
    size_bytes = log.size_bytes[arrived].astype(np.float64)
    shortest_ns = int(log.delay_ns.min())
    # It came before its predecessor had left the queue, whatever part of the shortest delay is service.
    queued = send_ns[1:] <= arrival_ns[:-1] - shortest_ns
    found: list[tuple[float, float, Floats]] = []
    most = math.inf
    for packets in _SPANS:
        spans = _times_per_byte(arrival_ns, size_bytes, queued, packets)
        if len(spans) >= LEAST_SPANS:
            mode, share = _lowest_strong_mode(spans)
            if packets == 1 and share >= _SHARP_PAIRS:
                most = _AGREEING * mode
            least_share = share - _DEVIATIONS * math.sqrt(share * (1 - share) / len(spans))
            if mode <= most:
                found.append((least_share, mode, spans))
    if not found:
        raise InputError(
            f"only {int(queued.sum())} of {len(log)} packets queued behind the one before, and {LEAST_SPANS} are "
            "needed to see the bottleneck's rate: send trains of packets faster than it, like those of wanbed probe"
        )
    _, mode, spans = max(found, key=lambda each: each[0])
    pairs = _times_per_byte(arrival_ns, size_bytes, queued, 1)
    # Others make a pair longer. What makes it shorter is noise, which makes as many longer.
    shorter = pairs[pairs <= mode] - mode
    noise_ns = float(np.sqrt(np.mean(shorter**2)) * np.median(size_bytes)) if len(shorter) else 0.0
    return Bottleneck(mode, noise_ns, len(spans))


def base_delay_ns(log: PacketLog, bottleneck: Bottleneck) -> float:
    """Return the delay of a packet that finds the queue empty, without the time in which the bottleneck sends it."""
    service_ns = log.size_bytes[log.arrived] * bottleneck.ns_per_byte
    return max(0.0, float(np.min(log.delay_ns - service_ns)))


def _times_per_byte(
    arrival_ns: npt.NDArray[np.int64], size_bytes: Floats, queued: npt.NDArray[np.bool_], packets: int
) -> Floats:
    """Return the time for each byte over every span of so many packets that queued behind one another."""
    if len(queued) < packets:
        return np.zeros(0)
    whole = np.lib.stride_tricks.sliding_window_view(queued, packets).all(axis=1)
    total = np.concatenate([np.zeros(1), np.cumsum(size_bytes)])
    took_ns = (arrival_ns[packets:] - arrival_ns[:-packets])[whole]
    spans = took_ns / (total[packets + 1 :] - total[1:-packets])[whole]
    return np.asarray(spans[spans > 0])


def _lowest_strong_mode(spans: Floats) -> tuple[float, float]:
    """Return the lowest of the strong modes, and the fraction of the spans within ``_WINDOW`` of it."""
    ordered = np.sort(spans)
    low = np.searchsorted(ordered, ordered * (1 - _WINDOW), side="left")
    high = np.searchsorted(ordered, ordered * (1 + _WINDOW), side="right")
    near = high - low
    first = int(np.argmax(near >= _STRONG * near.max()))
    # Its peak is at most two windows above the first value that is strong.
    last = int(np.searchsorted(ordered, ordered[first] * (1 + 2 * _WINDOW), side="right"))
    peak = first + int(np.argmax(near[first:last]))
    inside = ordered[low[peak] : high[peak]]
    return float(np.median(inside)), len(inside) / len(ordered)
