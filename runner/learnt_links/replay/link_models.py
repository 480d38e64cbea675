"""Replay a log's packets through models of its link: with the cross traffic learnt, as a condition trace, constant."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wanbed.runner.learnt_links.fit.fitted_link import FittedLink
from wanbed.runner.learnt_links.logs.packet_log import PacketLog
from wanbed.runner.learnt_links.replay.fifo import ServiceRate, serve
from wanbed.runner.learnt_links.replay.outcome import ReplayOutcome, outcome

Floats = npt.NDArray[np.float64]

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
        """Return that of a fitted link, for replays that begin at a time of its log or after it."""
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
