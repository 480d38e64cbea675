"""Fit models to the first part of a log, replay the rest of its packets through each, and compare."""

from collections.abc import Callable
from dataclasses import dataclass

from wanbed.runner.learnt_links.condition_trace import LearntConditions, condition_trace
from wanbed.runner.learnt_links.fitted_link import FittedLink, check_times, fit_link
from wanbed.runner.learnt_links.packet_log import PacketLog
from wanbed.runner.learnt_links.replay import (
    ReplayedLink,
    ReplayOutcome,
    constant,
    outcome_of,
    with_cross_traffic,
    without_sampling_noise,
)

LEARNT = "learnt link"
TRACE = "condition trace"
CONSTANT = "constant link"
CELL = "recurrent cell"

LEAST_HELD_OUT = 50
"""The fewest packets that are held out, if any are."""

Cell = Callable[[FittedLink, PacketLog, PacketLog, int], ReplayOutcome]
"""Train the recurrent cell on a fitted link and its log, and return its outcome on the packets held out, by a seed."""


@dataclass(frozen=True)
class LearntLink:
    """The link that was learnt from a log, and its check on the packets held out.

    ``held_out`` has, by its name, the outcome of each model on the packets held out. ``truth`` is the real outcome of
    these packets. If nothing was held out, ``held_out`` is empty and ``truth`` is None.
    """

    fitted_log: PacketLog
    held_out_log: PacketLog
    link: FittedLink
    trace: LearntConditions
    truth: ReplayOutcome | None
    held_out: dict[str, ReplayOutcome]


def learn(log: PacketLog, split: float, seed: int, piece_ns: int | None = None, cell: Cell | None = None) -> LearntLink:
    """Fit a link to the part of a log before ``split`` of its time, and judge it by the rest.

    Raise InputError, with one line, if that part does not show a link, or the times of any part are no link's.
    """
    fitted_log, rest = log.split(split)
    fitted = fit_link(fitted_log, piece_ns)
    check_times(log, fitted.bottleneck)
    link = without_sampling_noise(fitted, fitted_log, seed)
    trace = condition_trace([fitted, link], fitted_log, seed)
    if len(rest) < LEAST_HELD_OUT or not rest.arrived.any():
        return LearntLink(fitted_log, rest, link, trace, None, {})
    model, cross = ReplayedLink.of(link, int(rest.send_ns[0])), link.cross_traffic
    held_out = {
        LEARNT: with_cross_traffic(model, rest, cross.rate_bps, cross.piece_ns, seed),
        TRACE: trace.replay(model, rest, seed),
        CONSTANT: constant(model, rest, float(cross.rate_bps.mean()), seed),
    }
    if cell is not None:
        held_out[CELL] = cell(link, fitted_log, rest, seed)
    return LearntLink(fitted_log, rest, link, trace, outcome_of(rest), held_out)
