"""Turn a learnt link into the conditions of a link over time, and write them as the traces that links replay.

A link whose conditions change is no FIFO queue that is shared with others, so it can show one of two things about them:

- ``RATE``: others take part of the rate. The latency is the base delay, the rate what others leave. This is what a long
  transfer sees.
- ``LATENCY``: others are ahead in the queue. The rate is the bottleneck's, and latency and loss are those of the queue
  that others fill. This is what short bursts see.

Which one fits the log's own traffic is decided by replaying the fitted part with each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt

from wanbed.ground.files import write_whole
from wanbed.ground.units import MAX_RATE_BPS, format_duration, format_fraction, format_rate
from wanbed.runner.learnt_links.cross_traffic import CrossTraffic
from wanbed.runner.learnt_links.fitted_link import FittedLink
from wanbed.runner.learnt_links.packet_log import PacketLog
from wanbed.runner.learnt_links.replay import (
    LEAST_SHARE,
    Conditions,
    ReplayedLink,
    ReplayOutcome,
    ServiceRate,
    cross_packets,
    outcome_of,
    serve,
    with_conditions,
)

Floats = npt.NDArray[np.float64]

_RATE_DIGITS = 4
_LATENCY_STEP_NS = 1000
_LOSS_DECIMALS = 4
_WRONG_LOSS = 0.01


class Form(StrEnum):
    """The figure in the conditions that shows others' traffic."""

    RATE = "rate"
    LATENCY = "latency"


@dataclass(frozen=True)
class LearntConditions:
    """Conditions of one direction of a link, and what they show of others' traffic."""

    form: Form
    conditions: Conditions

    def replay(self, model: ReplayedLink, log: PacketLog, seed: int) -> ReplayOutcome:
        """Replay a log's packets over a link with these conditions, which start again at their end."""
        return with_conditions(model, log, self.conditions, seed)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the file. A line that would repeat the conditions before it is left out."""
        yield "t_s,latency,rate,loss"
        each, before = self.conditions, ""
        for number, (latency_ns, rate_bps, loss) in enumerate(
            zip(each.latency_ns.tolist(), each.rate_bps.tolist(), each.loss.tolist(), strict=True)
        ):
            now = f"{format_duration(round(latency_ns))},{format_rate(round(rate_bps))},{format_fraction(loss)}"
            if now != before:
                yield f"{_seconds(number * each.piece_ns)},{now}"
            before = now


def condition_trace(links: Sequence[FittedLink], log: PacketLog, seed: int) -> LearntConditions:
    """Return the conditions that reproduce best the log to which the links were fitted, of any link and form.

    The links may differ in their cross traffic only.

    One whose loss is wrong is taken only if that of the other is as well; then delays decide.
    """
    truth, model = outcome_of(log), ReplayedLink.of(links[0])

    def misfit(trace: LearntConditions) -> tuple[bool, float]:
        replayed = trace.replay(model, log, seed)
        return abs(replayed.loss - truth.loss) > _WRONG_LOSS, replayed.error_ns(truth)

    return min((_form(form, each, seed) for each in links for form in Form), key=misfit)


def write_trace(trace: LearntConditions, path: Path) -> None:
    """Write the conditions as CSV."""
    write_whole(path, "".join(f"{line}\n" for line in trace.lines()))


def write_cross_traffic(cross: CrossTraffic, path: Path) -> None:
    """Write the rate of others' traffic over time as CSV: ``t_s,rate``; a rate of zero is ``0bit``."""
    rows = (
        f"{_seconds(number * cross.piece_ns)},{format_rate(round(_rounded(rate_bps)))}\n"
        for number, rate_bps in enumerate(cross.rate_bps.tolist())
    )
    write_whole(path, "t_s,rate\n" + "".join(rows))


def _form(form: Form, link: FittedLink, seed: int) -> LearntConditions:
    cross = link.cross_traffic
    pieces = len(cross.rate_bps)
    base_ns = np.full(pieces, round(link.base_delay_ns / _LATENCY_STEP_NS) * float(_LATENCY_STEP_NS))
    random_loss = np.full(pieces, round(link.buffer.random_loss, _LOSS_DECIMALS))
    if form is Form.RATE:
        left_bps = np.maximum(link.rate_bps - cross.rate_bps, LEAST_SHARE * link.rate_bps)
        rates = np.array([_rounded(each) for each in left_bps.tolist()])
        return LearntConditions(form, Conditions(cross.piece_ns, rates, base_ns, random_loss))
    wait_ns, dropped = _queue_of_others(link, seed)
    wait_ns = np.round(wait_ns / _LATENCY_STEP_NS) * _LATENCY_STEP_NS
    loss = np.round(random_loss + (1 - random_loss) * dropped, _LOSS_DECIMALS)
    full_bps = np.full(pieces, _rounded(link.rate_bps))
    return LearntConditions(form, Conditions(cross.piece_ns, full_bps, base_ns + wait_ns, loss))


def _queue_of_others(link: FittedLink, seed: int) -> tuple[Floats, Floats]:
    """Return the mean wait in the queue that the cross traffic alone fills, and its drops, for each piece."""
    cross = link.cross_traffic
    pieces = len(cross.rate_bps)
    packets = cross_packets(cross.rate_bps, cross.piece_ns, np.random.default_rng(seed))
    at_ns, size_bytes = packets.at_ns, np.full(len(packets.at_ns), packets.size_bytes)
    served = serve(at_ns, size_bytes, ServiceRate.constant(link.rate_bps), link.buffer_bytes)
    service_ns = packets.size_bytes * link.bottleneck.ns_per_byte
    piece = np.minimum(at_ns // cross.piece_ns, pieces - 1).astype(np.int64)
    waited_ns = np.where(served.let_in, served.departure_ns - at_ns - service_ns, 0.0)
    sent, let_in = np.bincount(piece, minlength=pieces), np.bincount(piece[served.let_in], minlength=pieces)
    total_ns = np.bincount(piece, weights=waited_ns, minlength=pieces)
    # A wait is for the bottleneck's share that others hold; a piece with few packets of theirs is mostly idle.
    idle_share = np.clip(1 - cross.rate_bps / link.rate_bps, 0.0, 1.0) * (sent == 0)
    mean_ns = np.divide(total_ns, let_in, out=np.zeros(pieces), where=let_in > 0) * (1 - idle_share)
    return mean_ns, np.divide(sent - let_in, sent, out=np.zeros(pieces), where=sent > 0)


def _rounded(rate_bps: float) -> float:
    """Return a rate of four digits, at least 1 bit/s unless it is zero."""
    return min(float(f"{rate_bps:.{_RATE_DIGITS}g}"), float(MAX_RATE_BPS))


def _seconds(time_ns: int) -> str:
    return f"{(Decimal(time_ns) / 10**9).normalize():f}"
