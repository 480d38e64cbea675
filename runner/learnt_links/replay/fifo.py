"""Send packets through a FIFO queue in front of a server of a piecewise-constant rate, as netem does with a rate.

Work is counted in bytes of service: a clock that advances by the bytes which the server could have served. On that
clock any rate is one byte a tick, and the backlog before a packet follows Lindley's recursion (Lindley, "The theory of
queues with a single server", 1952).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_BLOCK = 4096
"""Packets that are computed at once where none of them meets a full buffer."""


@dataclass(frozen=True)
class ServiceRate:
    """The rate of a server over time: ``rate_bps[k]`` from ``start_ns[k]`` on, the last one for ever.

    ``start_ns`` begins with 0 and increases; every rate is above 0.
    """

    start_ns: Floats
    rate_bps: Floats

    @classmethod
    def constant(cls, rate_bps: float) -> "ServiceRate":
        """Return a rate that does not change."""
        return cls(np.zeros(1), np.full(1, float(rate_bps)))

    def served_bytes(self, at_ns: Floats) -> Floats:
        """Return the bytes that the server could have served by each time."""
        piece = np.clip(np.searchsorted(self.start_ns, at_ns, side="right") - 1, 0, None)
        return np.asarray(self._before[piece] + (at_ns - self.start_ns[piece]) * self.rate_bps[piece] / 8e9)

    def time_ns(self, served_bytes: Floats) -> Floats:
        """Return when the server could have served as many bytes: the inverse of ``served_bytes``."""
        before = self._before
        piece = np.clip(np.searchsorted(before, served_bytes, side="right") - 1, 0, None)
        return np.asarray(self.start_ns[piece] + (served_bytes - before[piece]) * 8e9 / self.rate_bps[piece])

    def at(self, at_ns: Floats) -> Floats:
        """Return the rate at each time."""
        piece = np.clip(np.searchsorted(self.start_ns, at_ns, side="right") - 1, 0, None)
        return np.asarray(self.rate_bps[piece])

    @property
    def _before(self) -> Floats:
        whole = np.diff(self.start_ns) * self.rate_bps[:-1] / 8e9
        return np.concatenate([np.zeros(1), np.cumsum(whole)])


@dataclass(frozen=True)
class QueueOutcome:
    """The outcome of a FIFO queue for each packet: whether it was let in, and when its last bit left (0 if not)."""

    let_in: Flags
    departure_ns: Floats


def serve(
    arrival_ns: Floats,
    size_bytes: Floats,
    rate: ServiceRate,
    buffer_bytes: Floats | float = np.inf,
    queued_bytes: float = 0.0,
) -> QueueOutcome:
    """Serve packets in the order given, whose arrival times never decrease.

    A packet is let in if the backlog with it is at most ``buffer_bytes``, one number or one for each packet. The one in
    service counts as long as any of it is left. At time 0 the queue holds ``queued_bytes`` of others.
    """
    ticks = rate.served_bytes(arrival_ns)
    limits = np.broadcast_to(np.asarray(buffer_bytes, dtype=np.float64), ticks.shape)
    let_in = np.ones(len(ticks), dtype=np.bool_)
    done = np.zeros(len(ticks))
    free = queued_bytes  # When the server will have nothing to do, in ticks.
    for start in range(0, len(ticks), _BLOCK):
        rows = slice(start, start + _BLOCK)
        finished = _all_let_in(ticks[rows], size_bytes[rows], free)
        if np.any(finished - ticks[rows] > limits[rows]):
            finished, let_in[rows], free = _one_by_one(ticks[rows], size_bytes[rows], limits[rows], free)
        else:
            free = float(finished[-1])
        done[rows] = finished
    return QueueOutcome(let_in, np.where(let_in, rate.time_ns(done), 0.0))


def _all_let_in(ticks: Floats, size_bytes: Floats, free: float) -> Floats:
    """Return when each packet is done if none is dropped: the recursion as a running maximum."""
    total = np.cumsum(size_bytes)
    earlier = total - size_bytes
    latest_start = np.maximum.accumulate(np.maximum(ticks - earlier, free))
    return np.asarray(latest_start + total)


def _one_by_one(ticks: Floats, size_bytes: Floats, limits: Floats, free: float) -> tuple[Floats, Flags, float]:
    finished, let_in = [], []
    for tick, size, limit in zip(ticks.tolist(), size_bytes.tolist(), limits.tolist(), strict=True):
        done = max(tick, free) + size
        fits = done - tick <= limit
        let_in.append(fits)
        finished.append(done if fits else 0.0)
        if fits:
            free = done
    return np.array(finished), np.array(let_in, dtype=np.bool_), free
