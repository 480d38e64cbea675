"""Estimate the buffer of a bottleneck from the packets that were lost at its fullest, and the loss that is random.

A FIFO queue with a drop tail loses a packet that does not fit. So where packets are lost because of it, the packets
that got in just before and after left a backlog of nearly the whole buffer.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runner.learnt_links.fit.backlog import Backlogs
from runner.learnt_links.logs.packet_log import PacketLog

Floats = npt.NDArray[np.float64]

LEAST_OVERFLOWS = 5
"""The fewest losses at a full queue that show a buffer."""

_LIKELIER = 3
"""How many times likelier a loss is at a full buffer than elsewhere; otherwise losses are random."""


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
    before = seen.left_bytes[np.clip(number_before, 0, last)]
    after = seen.left_bytes[np.clip(number_before + 1, 0, last)]
    around = np.maximum(before, after)
    lost = ~arrived
    largest = float(seen.left_bytes.max())
    full = around >= _level_of_loss(around, lost)
    overflow = full & lost
    lost_elsewhere = float(np.mean(lost[~full])) if np.any(~full) else 0.0
    if overflow.sum() >= LEAST_OVERFLOWS and float(np.mean(lost[full])) > _LIKELIER * lost_elsewhere:
        return BufferFit(float(np.median(around[overflow])), largest, int(overflow.sum()), lost_elsewhere)
    return BufferFit(None, largest, 0, log.loss)


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
