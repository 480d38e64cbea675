"""Fit a link with a FIFO queue to a log of packets, and refuse a log whose times no such link can have made.

A clock that is set while packets are captured shifts all delays after it. To a fit that looks like a queue that others
fill in an instant and keep at exactly its height, so it has to be refused.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wanbed.ground.errors import InputError
from wanbed.ground.units import format_duration
from wanbed.results.text import seconds_text
from wanbed.runner.learnt_links.bottleneck import (
    Backlogs,
    Bottleneck,
    BufferFit,
    backlogs,
    base_delay_ns,
    fit_bottleneck,
    fit_buffer,
)
from wanbed.runner.learnt_links.cross_traffic import MOST_PIECES, CrossTraffic, chosen_piece_ns, fit_cross_traffic
from wanbed.runner.learnt_links.packet_log import PacketLog
from wanbed.testbed.network.links.condition_trace import MAX_TRACE_NS
from wanbed.testbed.network.links.link_spec import MAX_DELAY_NS

Floats = npt.NDArray[np.float64]

_MOST_OVERTAKEN = 0.01
"""The largest fraction of packets that arrive before one sent earlier."""

_NOISE_NS = 1_000_000
"""Times that differ by less are noise; so are times within two packets."""

_WINDOW_PACKETS = 50
"""Packets before and after a step of the least delay."""

_LEAST_STEP_PACKETS = 4
_NEAR_PACKETS = 0.1

_SHARP = 0.1
"""The fraction of a window's packets whose delay is the least one, within that part of a packet's service time."""

_MORE_LOST = 0.05
"""A delay that rises and stays may be that of a full buffer, if so many more packets are lost than before."""

_FLOOD, _DROWNED = 20, 0.8
"""A burst of others, in multiples of what the line carries between two packets, and the part of the log's packets that
is lost at least where such others go on."""


def check_times(log: PacketLog, bottleneck: Bottleneck) -> None:
    """Raise InputError, with one line, for delays or times beyond those of a link, and for a clock that was set."""
    if log.span_ns > MAX_TRACE_NS:
        raise InputError(
            f"its packets were sent over {seconds_text(log.span_ns / 1e9)}, and a trace has 31 days at most: give a "
            "part of the log, and if a clock was set, the part before or after"
        )
    least_ns = int(log.delay_ns.min())
    if least_ns > MAX_DELAY_NS:
        raise InputError(
            f"the least delay is {seconds_text(least_ns / 1e9)}, and a link has {format_duration(MAX_DELAY_NS)} at "
            "most: relate the clocks of both ends first"
        )
    service_ns = log.size_bytes[log.arrived] * bottleneck.ns_per_byte
    _check_order(log, 2 * float(np.median(service_ns)))
    _check_step(log, np.asarray(log.delay_ns - service_ns), float(np.median(service_ns)), bottleneck.noise_ns)


def _check_order(log: PacketLog, near_ns: float) -> None:
    arrival_ns = log.arrival_ns[log.arrived]
    early = np.maximum.accumulate(arrival_ns) - arrival_ns > max(near_ns, _NOISE_NS)
    if early.mean() > _MOST_OVERTAKEN:
        first_ns = int(log.send_ns[log.arrived][int(np.argmax(early))])
        raise InputError(
            f"{int(early.sum())} of {len(early)} packets arrive before one that was sent earlier, the first one sent "
            f"at {first_ns / 1e9:.6f} s: a FIFO queue keeps their order. A clock was set, or packets take several "
            "paths: give a part of the log without that"
        )


def _check_step(log: PacketLog, excess_ns: Floats, packet_ns: float, noise_ns: float) -> None:
    """Raise InputError if the least delay changes from one packet to the next and stays, as no queue explains it.

    A queue falls no faster than time passes. To make it rise so, others would have to fill it between two packets, and
    then send what the line carries and no packet more; or many times what the line carries.
    """
    packets = len(excess_ns)
    window = min(_WINDOW_PACKETS, packets // 2)
    windows = np.lib.stride_tricks.sliding_window_view(excess_ns, window)
    floor_ns = windows.min(axis=1)
    near_ns = max(_NEAR_PACKETS * packet_ns, 3 * noise_ns)
    least_ns = max(_LEAST_STEP_PACKETS * packet_ns, 10 * near_ns, _NOISE_NS)
    sharp = (windows <= floor_ns[:, None] + near_ns).mean(axis=1) >= _SHARP
    place = np.flatnonzero(log.arrived)
    lost_share = 1 - window / np.maximum(place[window - 1 :] - place[: packets - window + 1] + 1, window)
    before, after = slice(0, packets - 2 * window + 1), slice(window, None)
    # No packet before the step and none after it may be on its other side.
    until_ns = np.minimum.accumulate(excess_ns)[window - 1 : packets - window]
    from_ns = np.minimum.accumulate(excess_ns[::-1])[::-1][window : packets - window + 1]
    step_ns = from_ns - until_ns
    between = slice(window - 1, packets - window)
    jump_ns, gap_ns = np.diff(excess_ns)[between], np.diff(log.send_ns[place])[between]
    full = lost_share[after] - lost_share[before] > _MORE_LOST
    drowned = full & (lost_share[after] > _DROWNED)
    flooded = jump_ns > _FLOOD * (gap_ns + packet_ns)
    rises = (jump_ns >= step_ns - gap_ns - near_ns) & (sharp[before] & sharp[after] & ~full | flooded & ~drowned)
    falls = -jump_ns > gap_ns + least_ns
    steps = np.abs(step_ns) * np.where(step_ns > 0, rises, falls)
    at = int(np.argmax(steps))
    if steps[at] > least_ns:
        at_s = float(log.send_ns[place[at + window]]) / 1e9
        raise InputError(
            f"the least delay {'rises' if step_ns[at] > 0 else 'falls'} by {seconds_text(steps[at] / 1e9)} from one "
            f"packet to the next, sent at {at_s:.6f} s, and stays so: a clock was set, or the path changed: give the "
            "part of the log before or after"
        )


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
