"""Estimate the buffer of a bottleneck from the packets that were lost at its fullest, and the loss that is random.

A FIFO queue with a drop tail loses a packet that does not fit. So where packets are lost because of it, the packets
that got in just before and after left a backlog of nearly the whole buffer.
"""

from dataclasses import dataclass

import numpy as np

from runner.learnt_links.fit.backlog import Backlogs
from runner.learnt_links.logs.packet_log import PacketLog

LEAST_OVERFLOWS = 5
"""The fewest losses at a full queue that show a buffer."""

_FULL = 0.8
"""A queue is nearly full at this fraction of the largest backlog that was seen."""
_LIKELIER = 3
"""How many times likelier a loss is at a full buffer than elsewhere; otherwise losses are random."""
_UPPER_QUANTILE = 0.9


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
    largest = float(seen.left_bytes.max())
    number_before = np.cumsum(arrived) - 1  # Of the last packet that arrived, itself included.
    last = len(seen.left_bytes) - 1
    before = seen.left_bytes[np.clip(number_before, 0, last)]
    after = seen.left_bytes[np.clip(number_before + 1, 0, last)]
    around = np.maximum(before, after)
    full = around >= _FULL * largest
    lost = ~arrived
    overflow = full & lost
    lost_elsewhere = float(np.mean(lost[~full])) if np.any(~full) else 0.0
    lost_when_full = float(np.mean(lost[full]))
    if overflow.sum() >= LEAST_OVERFLOWS and lost_when_full > _LIKELIER * lost_elsewhere:
        buffer_bytes = float(np.quantile(around[overflow], _UPPER_QUANTILE))
        return BufferFit(buffer_bytes, largest, int(overflow.sum()), lost_elsewhere)
    return BufferFit(None, largest, 0, log.loss)
