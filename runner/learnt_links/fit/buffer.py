"""Estimate the buffer of a bottleneck from the packets that were lost at its fullest, and the loss that is random.

A FIFO queue with a drop tail loses a packet that does not fit. So where packets are lost because of it, the packets
that got in just before and after left a backlog of nearly the whole buffer. A queue that is always nearly full
shows nothing to compare with.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wanbed.runner.learnt_links.fit.backlog import Backlogs
from wanbed.runner.learnt_links.logs.packet_log import PacketLog

Floats = npt.NDArray[np.float64]

LEAST_OVERFLOWS = 5
"""The fewest losses at a full queue that show a buffer."""

_LIKELIER = 3
"""The least ratio of the chance of a loss at a full buffer to that elsewhere. With a lower ratio, losses are random."""
_MANY = 0.05
"""More losses than that, where the queue was never seen empty, may be those of a queue that is always nearly full."""
_NEAR_FULL, _NEAR_PACKETS = 0.1, 2
"""They are, if half of them are so near the largest backlog: as a part of it, or within so many packets."""
_DEVIATIONS = 3.0
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
    near = max(_NEAR_FULL * largest, _NEAR_PACKETS * float(seen.size_bytes.max()))
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
    share, spread = lost / of, _DEVIATIONS**2 / of
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
