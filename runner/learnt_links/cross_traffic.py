"""Estimate the traffic of others through a bottleneck, as a piecewise-constant rate, from the residual queue.

Between two packets of the log the queue loses what the bottleneck serves and gains what others send. If the queue
cannot have emptied meanwhile, what others sent follows exactly from both backlogs (as iBox counts it: Ashok et al.,
"iBox: Internet in a box", HotNets 2020). In the remaining time, the fraction of packets that find the queue occupied
although the log's own packets have been served is the fraction of the rate that others take: arrivals at random times
see what time sees (Wolff, "Poisson arrivals see time averages", Operations Research, 1982).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wanbed.runner.learnt_links.bottleneck import Backlogs
from wanbed.runner.learnt_links.packet_log import PacketLog

Floats = npt.NDArray[np.float64]

PACKETS_A_PIECE = 20
"""The packets that a piece of the series should have."""

_LEAST_PIECE_NS = 10_000_000
"""10 ms: a link's condition cannot follow faster than it is applied."""

_LEAST_LOOKS = 3

_ALONE = 4
"""A packet is alone if the one before it was sent so many of its service times earlier."""

_LEAST_BPS = 1.0
"""Below it a rate is rounding."""

MOST_PIECES = 100_000
"""As many as a trace has rows."""

_MOST_LOST = 0.8
"""The largest loss from which what others offered is inferred."""


@dataclass(frozen=True)
class CrossTraffic:
    """The rate of others' traffic: ``rate_bps[k]`` from ``k`` times ``piece_ns`` on, for as long.

    ``exact_fraction`` is the fraction of the time in which it follows from two backlogs.
    """

    piece_ns: int
    rate_bps: Floats
    exact_fraction: float

    @property
    def start_ns(self) -> Floats:
        """The start of each piece."""
        return np.asarray(np.arange(len(self.rate_bps)) * float(self.piece_ns), dtype=np.float64)


def chosen_piece_ns(packets: int, span_ns: int) -> int:
    """Return the length of a piece: 10, 20, 50, 100 ms and so on, the least that has ``PACKETS_A_PIECE`` on average.

    No more than a trace may have rows cover the span.
    """
    wanted = max(_LEAST_PIECE_NS, span_ns * PACKETS_A_PIECE / max(1, packets), span_ns / MOST_PIECES)
    power = 10 ** int(np.floor(np.log10(wanted)))
    return next(int(step * power) for step in (1, 2, 5, 10) if step * power >= wanted)


def fit_cross_traffic(log: PacketLog, seen: Backlogs, piece_ns: int, *, overflows: bool) -> CrossTraffic:
    """Return the traffic of others in the time of a log, in pieces of ``piece_ns``; the last piece may be cut short.

    A full queue hides what it did not let in. Where the log shows that the queue ``overflows``, others are taken to
    lose the same fraction there as the log's packets. Otherwise losses are random, and packets that were lost behind
    the queue are not taken for others'. What others got through is never more than the line carries.
    """
    span_ns = max(1, log.span_ns)
    pieces = -(-span_ns // piece_ns)
    edges_ns: Floats = np.asarray(np.arange(pieces + 1) * float(piece_ns), dtype=np.float64)
    rate_bps = 8e9 / seen.ns_per_byte
    gap_ns = np.diff(seen.at_ns)
    own_left = seen.left_bytes[:-1] - gap_ns / seen.ns_per_byte  # If nothing else came.
    exact = own_left >= 0
    gained_bytes = np.where(exact, seen.found_bytes[1:] - own_left, 0.0)
    looking = ~exact
    if not overflows:
        lost_bytes = _lost_in_gaps(log, len(gained_bytes))
        gained_bytes -= _served_and_lost(lost_bytes, gained_bytes, np.where(exact, gap_ns, 0.0))
        # A packet of the log that was lost behind the queue may be what the next one finds in it.
        looking &= lost_bytes == 0
    # Noise in the times cancels over the packets of a piece.
    known_bytes = np.maximum(np.diff(_by_time(edges_ns, seen.at_ns, np.cumsum(gained_bytes))), 0.0)
    known_ns = np.diff(_by_time(edges_ns, seen.at_ns, np.cumsum(np.where(exact, gap_ns, 0.0))))

    piece = np.clip((seen.at_ns[1:] // piece_ns).astype(np.int64), 0, pieces - 1)
    looks = np.bincount(piece[looking], minlength=pieces)
    occupied = np.bincount(piece[looking & (seen.found_bytes[1:] > seen.tolerance_bytes)], minlength=pieces)
    looked_bps = np.divide(occupied * rate_bps, looks, out=np.full(pieces, np.nan), where=looks >= _LEAST_LOOKS)
    mean_bps = min(rate_bps, 8e9 * float(known_bytes.sum()) / max(1.0, float(known_ns.sum())))
    unknown_ns = np.maximum(piece_ns - known_ns, 0.0)
    let_in_bps = np.minimum((known_bytes * 8e9 + _filled(looked_bps, mean_bps) * unknown_ns) / piece_ns, rate_bps)
    offered_bps = let_in_bps / (1 - _lost_alone(log, seen, piece_ns, pieces)) if overflows else let_in_bps
    offered_bps = np.where(offered_bps < _LEAST_BPS, 0.0, offered_bps)
    return CrossTraffic(piece_ns, offered_bps, float(known_ns.sum() / span_ns))


def _lost_in_gaps(log: PacketLog, gaps: int) -> Floats:
    """Return how many bytes of the log were lost in each gap between two arrivals."""
    number_before = np.cumsum(log.arrived) - 1
    lost = ~log.arrived & (number_before >= 0) & (number_before < gaps)
    lost_bytes = np.bincount(number_before[lost], weights=log.size_bytes[lost], minlength=gaps)
    return np.asarray(lost_bytes, dtype=np.float64)


def _served_and_lost(lost_bytes: Floats, gained_bytes: Floats, known_ns: Floats) -> Floats:
    """Return how many bytes of the log's own lost packets each gap between arrivals had served.

    Packets that are lost before the queue leave no trace in it, those lost behind it have been served: the queue gains
    their bytes in the gap. Which it is shows in the gaps' mean: those with losses gain more than others do, by the
    bytes that were lost, or not at all.
    """
    with_loss, without = (known_ns > 0) & (lost_bytes > 0), (known_ns > 0) & (lost_bytes == 0)
    if not with_loss.any():
        return np.zeros(len(gained_bytes))
    of_others = float(gained_bytes[without].sum()) / max(1.0, float(known_ns[without].sum()))
    more_bytes = float(gained_bytes[with_loss].sum()) - of_others * float(known_ns[with_loss].sum())
    share = min(1.0, max(0.0, more_bytes / float(lost_bytes[with_loss].sum())))
    return np.asarray(np.where(with_loss, share * lost_bytes, 0.0))


def _lost_alone(log: PacketLog, seen: Backlogs, piece_ns: int, pieces: int) -> Floats:
    """Return, for each piece, the fraction lost of the packets that did not follow closely on one of the log's own."""
    service_ns = log.size_bytes[:-1] * seen.ns_per_byte
    alone = np.concatenate([np.ones(1, dtype=np.bool_), np.diff(log.send_ns) > _ALONE * service_ns])
    piece = np.minimum(log.send_ns // piece_ns, pieces - 1)
    sent = np.bincount(piece[alone], minlength=pieces)
    lost = np.bincount(piece[alone & ~log.arrived], minlength=pieces)
    share = np.divide(lost, sent, out=np.zeros(pieces), where=sent >= _LEAST_LOOKS)
    return np.minimum(share, _MOST_LOST)


def _by_time(edges_ns: Floats, at_ns: Floats, sums: Floats) -> Floats:
    """Return running sums, known at each packet from the second on, at the edges of the pieces."""
    return np.asarray(np.interp(edges_ns, at_ns, np.concatenate([np.zeros(1), sums])))


def _filled(values: Floats, without_any: float) -> Floats:
    """Return the series with what is unknown replaced by its neighbours, by ``without_any`` if nothing is known."""
    known = ~np.isnan(values)
    if not known.any():
        return np.full(len(values), without_any)
    places = np.arange(len(values))
    return np.asarray(np.interp(places, places[known], values[known]))
