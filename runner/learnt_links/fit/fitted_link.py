"""Fit a link with a FIFO queue to a log of packets."""

from dataclasses import dataclass

from wanbed.ground.strict_model import InputError
from wanbed.ground.units import format_duration
from wanbed.results.text import seconds_text
from wanbed.runner.learnt_links.fit.backlog import Backlogs, backlogs
from wanbed.runner.learnt_links.fit.bottleneck_rate import Bottleneck, base_delay_ns, fit_bottleneck
from wanbed.runner.learnt_links.fit.buffer import BufferFit, fit_buffer
from wanbed.runner.learnt_links.fit.consistent_times import check_times
from wanbed.runner.learnt_links.fit.cross_traffic import MOST_PIECES, CrossTraffic, chosen_piece_ns, fit_cross_traffic
from wanbed.runner.learnt_links.logs.packet_log import PacketLog

LEAST_PACKETS = 100
"""The fewest packets of a log that a link is fitted to."""


@dataclass(frozen=True)
class FittedLink:
    """One direction of a link as a log shows it.

    A packet waits for its turn in a FIFO queue of ``buffer.buffer_bytes``, shares the bottleneck with ``cross_traffic``
    and then travels for ``base_delay_ns``.
    """

    base_delay_ns: float
    bottleneck: Bottleneck
    buffer: BufferFit
    cross_traffic: CrossTraffic
    seen: Backlogs

    @property
    def rate_bps(self) -> float:
        """The bottleneck's rate."""
        return self.bottleneck.rate_bps

    @property
    def buffer_bytes(self) -> float:
        """The buffer; without limit where no loss showed one."""
        return float("inf") if self.buffer.buffer_bytes is None else self.buffer.buffer_bytes


def fit_link(log: PacketLog, piece_ns: int | None = None) -> FittedLink:
    """Fit a link to a log, its cross traffic in pieces of ``piece_ns`` (chosen by the packets' number if None).

    Raise InputError, with one line, if the log does not show a link.
    """
    if len(log) < LEAST_PACKETS:
        raise InputError(f"{len(log)} packets to fit a link to, and {LEAST_PACKETS} are needed: give a longer log")
    if log.arrived.sum() < LEAST_PACKETS // 2:
        raise InputError(f"only {int(log.arrived.sum())} of {len(log)} packets arrived: nothing shows the link")
    bottleneck = fit_bottleneck(log)
    check_times(log, bottleneck)
    base_ns = base_delay_ns(log, bottleneck)
    seen = backlogs(log, bottleneck, base_ns)
    piece_ns = piece_ns or chosen_piece_ns(len(log), max(1, log.span_ns))
    if log.span_ns > MOST_PIECES * piece_ns:
        raise InputError(
            f"{seconds_text(log.span_ns / 1e9)} have more than {MOST_PIECES} pieces of {format_duration(piece_ns)}, "
            "the rows of a trace: give a longer --piece, or none"
        )
    buffer = fit_buffer(log, seen)
    cross_traffic = fit_cross_traffic(log, seen, piece_ns, overflows=buffer.buffer_bytes is not None)
    return FittedLink(base_ns, bottleneck, buffer, cross_traffic, seen)
