"""Estimate a link's bottleneck from a log: its rate, its backlog at each packet, its buffer, and random loss.

**Rate.** Two packets of a flow of which the second arrived at the queue before the first had left it come out one
service time apart if nothing came between them (packet pairs: Keshav, "A control-theoretic approach to flow control",
SIGCOMM 1991). Cross traffic between them makes the distance longer, by whole packets, so the lowest strong mode of time
per byte is the bottleneck's (Dovrolis, Ramanathan and Moore, "What do packet dispersion techniques measure?", INFOCOM
2001). Noise in the times matters less the longer a span of packets is, and cross traffic more: of spans of 1, 2, 4 and
8 packets, those are used whose mode is sharpest.

**Backlog.** Each packet's delay shows how many bytes it found queued.

**Buffer.** A FIFO queue with a drop tail loses a packet that does not fit. So where packets are lost because of it, the
packets that got in just before and after left a backlog of nearly the whole buffer. A queue that is always nearly full
shows nothing to compare with.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wanbed.ground.errors import InputError
from wanbed.runner.learnt_links.packet_log import PacketLog

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
        """Return the bytes in the queue at a time before or after all packets, if nothing else comes in between.

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


LEAST_OVERFLOWS = 5
"""The fewest losses at a full queue that show a buffer."""

_LIKELIER = 3
"""The least ratio of the chance of a loss at a full buffer to that elsewhere. With a lower ratio, losses are random."""

_MANY = 0.05
"""More losses than that, where the queue was never seen empty, may be those of a queue that is always nearly full."""

_NEAR_FULL, _BUFFER_NEAR_PACKETS = 0.1, 2
"""They are, if half of them are so near the largest backlog: as a part of it, or within so many packets."""

_LOSS_DEVIATIONS = 3.0
"""Deviations within which that has to hold: of many levels, one has few losses below it by chance."""


@dataclass(frozen=True)
class BufferFit:
    """The buffer of a bottleneck and the loss that is not its doing.

    ``buffer_bytes`` is None if no loss showed it; then the buffer holds at least ``largest_backlog_bytes``.
    ``random_loss`` is the fraction of packets that are lost wherever the queue is not full.
    """

    buffer_bytes: float | None
    largest_backlog_bytes: float
    overflow_losses: int
    random_loss: float


def fit_buffer(log: PacketLog, seen: Backlogs) -> BufferFit:
    """Return the buffer that a log's losses show."""
    arrived = log.arrived
    number_before = np.cumsum(arrived) - 1  # Of the last packet that arrived, itself included.
    last = len(seen.left_bytes) - 1
    place = np.clip(number_before, 0, last)
    # Its queue has been served since.
    passed_ns = np.maximum(log.send_ns - seen.at_ns[place], 0.0)
    before = np.maximum(seen.left_bytes[place] - passed_ns / seen.ns_per_byte, 0.0)
    after = seen.left_bytes[np.clip(number_before + 1, 0, last)]
    around = np.maximum(before, after)
    lost = ~arrived
    largest = float(seen.left_bytes.max())
    near = max(_NEAR_FULL * largest, _BUFFER_NEAR_PACKETS * float(seen.size_bytes.max()))
    if not seen.ever_empty and log.loss > _MANY and largest - (most := float(np.median(around[lost]))) <= near:
        return BufferFit(most, largest, int(lost.sum()), 0.0)
    full = around >= _level_of_loss(around, lost)
    overflow = full & lost
    least_full, _ = _likely_share(int(overflow.sum()), int(full.sum()))
    _, most_elsewhere = _likely_share(int((lost & ~full).sum()), int((~full).sum()))
    if overflow.sum() >= LEAST_OVERFLOWS and least_full > _LIKELIER * most_elsewhere:
        lost_elsewhere = float(np.mean(lost[~full])) if np.any(~full) else 0.0
        return BufferFit(float(np.median(around[overflow])), largest, int(overflow.sum()), lost_elsewhere)
    return BufferFit(None, largest, 0, log.loss)


def _likely_share(lost: int, of: int) -> tuple[float, float]:
    """Return the least and the greatest probability of a loss that so many losses are likely with.

    Source: Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.
    """
    if not of:
        return 0.0, 0.0
    share, spread = lost / of, _LOSS_DEVIATIONS**2 / of
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4) / (1 + spread)
    return middle - half, middle + half


def _level_of_loss(around: Floats, lost: npt.NDArray[np.bool_]) -> float:
    """Return the backlog from which on losses are another matter: the split that makes them likeliest.

    Of two rates of loss, one below and one from the level on, the likelihood of what was lost is largest there.
    """
    order = np.argsort(around, kind="stable")
    lost_below = np.cumsum(lost[order].astype(np.int64))[:-1]
    below = np.arange(1, len(around))
    lost_from = lost.sum() - lost_below
    likelihood = _log_likelihood(lost_below, below) + _log_likelihood(lost_from, len(around) - below)
    # Among equal backlogs there is no split.
    likelihood[np.diff(around[order]) == 0] = -np.inf
    return float(around[order][1:][int(np.argmax(likelihood))])


def _log_likelihood(lost: npt.NDArray[np.int64], of: npt.NDArray[np.int64]) -> Floats:
    """Return the log likelihood of so many losses at the rate that makes them likeliest."""
    share = lost / of
    with np.errstate(divide="ignore", invalid="ignore"):
        each = lost * np.log(share) + (of - lost) * np.log1p(-share)
    return np.asarray(np.nan_to_num(each, nan=0.0))
