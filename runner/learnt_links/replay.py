"""Replay a log's packets through models of its link: with the cross traffic learnt, as a condition trace, or constant.

Packets go through a FIFO queue in front of a server of a piecewise-constant rate, as netem has with a rate. Work is
counted in bytes of service: a clock that advances by the bytes which the server could have served. On that clock any
rate is one byte a tick, and the backlog before a packet follows Lindley's recursion (Lindley, "The theory of queues
with a single server", 1952).

A piece of a fitted cross traffic rests on few packets, so the series varies more than the traffic did, and its largest
pieces would build queues that never were. ``without_sampling_noise`` reduces its distance from its mean to the share
with which a replay of the fitted log comes nearest to the log.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from wanbed.runner.learnt_links.fitted_link import FittedLink
from wanbed.runner.learnt_links.packet_log import PacketLog

Floats = npt.NDArray[np.float64]
_Flags = npt.NDArray[np.bool_]

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

    let_in: _Flags
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


def _one_by_one(ticks: Floats, size_bytes: Floats, limits: Floats, free: float) -> tuple[Floats, _Flags, float]:
    finished, let_in = [], []
    for tick, size, limit in zip(ticks.tolist(), size_bytes.tolist(), limits.tolist(), strict=True):
        done = max(tick, free) + size
        fits = done - tick <= limit
        let_in.append(fits)
        finished.append(done if fits else 0.0)
        if fits:
            free = done
    return np.array(finished), np.array(let_in, dtype=np.bool_), free


QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class ReplayOutcome:
    """The quantiles ``QUANTILES`` of the delay of the packets that arrived, and the fraction that did not."""

    delay_ns: tuple[float, ...]
    loss: float

    def error_ns(self, truth: "ReplayOutcome") -> float:
        """Return the mean distance of the delay's quantiles from the true ones."""
        pairs = zip(self.delay_ns, truth.delay_ns, strict=True)
        return sum(abs(own - true) for own, true in pairs) / len(QUANTILES)


def outcome(delay_ns: npt.NDArray[np.float64], sent: int) -> ReplayOutcome:
    """Return the outcome of ``sent`` packets, of which those arrived that have a delay. Without any, it is infinite."""
    quantiles = np.quantile(delay_ns, QUANTILES) if len(delay_ns) else np.full(len(QUANTILES), np.inf)
    return ReplayOutcome(tuple(float(each) for each in quantiles), 1 - len(delay_ns) / sent)


def outcome_of(log: PacketLog) -> ReplayOutcome:
    """Return the real outcome of a log's packets."""
    return outcome(log.delay_ns.astype(np.float64), len(log))


_CROSS_PACKET_BYTES = 1500
"""The size of the packets of others: that of most packets of bulk traffic."""

_MOST_CROSS_PACKETS = 1_000_000
"""The most packets of others in a replay: where they would be more, as on a fast line, they are larger instead."""

LEAST_SHARE = 0.02
"""The least fraction of the bottleneck's rate that a condition leaves: a link of rate zero would be an outage."""


@dataclass(frozen=True)
class ReplayedLink:
    """The part that all models have in common: base delay, bottleneck rate, buffer and random loss.

    A replay begins with ``queued_bytes`` in the queue.
    """

    base_delay_ns: float
    rate_bps: float
    buffer_bytes: float
    random_loss: float
    queued_bytes: float

    @classmethod
    def of(cls, link: FittedLink, begin_ns: int = 0) -> "ReplayedLink":
        """Return the common part of a fitted link, for replays that begin at a time of its log or after it."""
        queued_bytes = link.seen.queued_bytes(begin_ns)
        return cls(link.base_delay_ns, link.rate_bps, link.buffer_bytes, link.buffer.random_loss, queued_bytes)


@dataclass(frozen=True)
class CrossPackets:
    """Packets of others: when each comes, in order, and the size of all of them."""

    at_ns: Floats
    size_bytes: float


def cross_packets(cross_bps: Floats, piece_ns: float, draw: np.random.Generator) -> CrossPackets:
    """Return the packets of others: Poisson arrivals whose rate follows the pieces."""
    total = float(cross_bps.sum()) * piece_ns / (8e9 * _CROSS_PACKET_BYTES)
    size_bytes = _CROSS_PACKET_BYTES * max(1.0, total / _MOST_CROSS_PACKETS)
    counts = draw.poisson(cross_bps * piece_ns / (8e9 * size_bytes))
    of_piece = np.repeat(np.arange(len(cross_bps)), counts)
    return CrossPackets(np.asarray(np.sort((of_piece + draw.random(len(of_piece))) * piece_ns)), size_bytes)


def with_cross_traffic(
    model: ReplayedLink, log: PacketLog, cross_bps: Floats, piece_ns: float, seed: int
) -> ReplayOutcome:
    """Replay a log in one FIFO queue with packets of others, whose rate is ``cross_bps``, piece by piece and looped."""
    draw = np.random.default_rng(seed)
    send_ns = _from_start(log)
    cross = cross_packets(_looped(cross_bps, piece_ns, float(send_ns[-1])), piece_ns, draw)
    at_ns = np.concatenate([send_ns, cross.at_ns])
    size_bytes = np.concatenate([log.size_bytes.astype(np.float64), np.full(len(cross.at_ns), cross.size_bytes)])
    order = np.argsort(at_ns, kind="stable")
    rate = ServiceRate.constant(model.rate_bps)
    served = serve(at_ns[order], size_bytes[order], rate, model.buffer_bytes, model.queued_bytes)
    own = order < len(log)
    delay_ns = (served.departure_ns - at_ns[order])[own] + model.base_delay_ns
    return _outcome(served.let_in[own], delay_ns, model.random_loss, draw)


@dataclass(frozen=True)
class Conditions:
    """A link's conditions over time: one rate, latency and random loss for every ``piece_ns`` from 0 on."""

    piece_ns: int
    rate_bps: Floats
    latency_ns: Floats
    loss: Floats


def with_conditions(model: ReplayedLink, log: PacketLog, conditions: Conditions, seed: int) -> ReplayOutcome:
    """Replay a log alone over a link whose conditions change, and start again at their end.

    The buffer holds as much time as that of the bottleneck does at its full rate, and so does what is queued at the
    beginning, without what the first latency shows of it.
    """
    send_ns = _from_start(log)
    series = _looped(conditions.rate_bps, conditions.piece_ns, float(send_ns[-1]))
    starts_ns: Floats = np.asarray(np.arange(len(series)) * float(conditions.piece_ns), dtype=np.float64)
    rate = ServiceRate(starts_ns, series)
    buffers = model.buffer_bytes * rate.at(send_ns) / model.rate_bps
    shown_bytes = max(0.0, float(conditions.latency_ns[0]) - model.base_delay_ns) * model.rate_bps / 8e9
    queued_bytes = max(0.0, model.queued_bytes - shown_bytes) * float(series[0]) / model.rate_bps
    sizes = log.size_bytes.astype(np.float64)
    served = serve(send_ns, sizes, rate, np.maximum(buffers, sizes), queued_bytes)
    piece = (send_ns // conditions.piece_ns).astype(np.int64) % len(conditions.rate_bps)
    delay_ns = served.departure_ns - send_ns + conditions.latency_ns[piece]
    return _outcome(served.let_in, delay_ns, conditions.loss[piece], np.random.default_rng(seed))


def constant(model: ReplayedLink, log: PacketLog, mean_cross_bps: float, seed: int) -> ReplayOutcome:
    """Replay a log over a link that is always the same: what the cross traffic leaves of the rate on average."""
    left_bps = max(model.rate_bps - mean_cross_bps, LEAST_SHARE * model.rate_bps)
    always = Conditions(10**9, np.full(1, left_bps), np.full(1, model.base_delay_ns), np.full(1, model.random_loss))
    return with_conditions(model, log, always, seed)


def _looped(series: Floats, piece_ns: float, span_ns: float) -> Floats:
    """Return a series of pieces, repeated until it covers ``span_ns``."""
    return np.asarray(np.resize(series, max(1, int(np.ceil((span_ns + 1) / piece_ns)))), dtype=np.float64)


def _from_start(log: PacketLog) -> Floats:
    return np.asarray(log.send_ns - log.send_ns[0], dtype=np.float64)


def _outcome(
    let_in: npt.NDArray[np.bool_], delay_ns: Floats, random_loss: Floats | float, draw: np.random.Generator
) -> ReplayOutcome:
    kept = let_in & (draw.random(len(let_in)) >= random_loss)
    return outcome(delay_ns[kept], len(let_in))


_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.25, 0.0)


def without_sampling_noise(link: FittedLink, log: PacketLog, seed: int) -> FittedLink:
    """Return the link with the share of its cross traffic's variation that reproduces best the log it was fitted to."""
    truth, model, cross = outcome_of(log), ReplayedLink.of(link), link.cross_traffic
    mean_bps = cross.rate_bps.mean()
    # None is rounded to above what the line carries.
    most_bps = cross.rate_bps.max()
    series = [np.minimum(mean_bps + share * (cross.rate_bps - mean_bps), most_bps) for share in _SHARES]
    best = min(
        series,
        key=lambda each: with_cross_traffic(model, log, each, cross.piece_ns, seed).error_ns(truth),
    )
    return replace(link, cross_traffic=replace(cross, rate_bps=best))
