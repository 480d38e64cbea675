"""Learn a link's cross traffic with a recurrent network that keeps the physics of a FIFO queue.

After RBU (Anshumaan et al., "Simulating Network Paths with Recurrent Buffering Units", arXiv 2202.13870): a cell for
windows of time infers the hidden cross traffic, and a layer for packets turns it into delays by Lindley's recursion,
with the base delay and the rate as weights. Both are trained together on the delays, with the cross traffic that was
estimated as a guide. This is a small reading of that design, not its code, which is not public: a window's cross
traffic is drawn from a few levels whose odds a GRU gives, so that the replay varies as the traffic did.

torch is an optional dependency, loaded with this module only.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from wanbed.runner.learnt_links.fitted_link import FittedLink
from wanbed.runner.learnt_links.packet_log import PacketLog
from wanbed.runner.learnt_links.replay import ReplayedLink, ReplayOutcome, with_cross_traffic

_LEVELS = 16
_HIDDEN = 24
_EPOCHS = 100
_LEARNING_RATE = 0.01
_GUIDE_WEIGHT = 0.3
"""Of the estimated cross traffic in the loss, beside the delays."""
_MOST_PACKETS = 50_000
"""Packets of the log that are trained on, from its start: enough for a network of this size."""
_LARGEST_STEP = 1.0

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CellLink:
    """The link that the cell has learnt, with its own base delay and rate, and a series of cross traffic that it drew.

    ``loss_before_ns`` and ``loss_after_ns`` are the mean absolute errors of the delays in training, in nanoseconds.
    """

    model: ReplayedLink
    cross_bps: Floats
    loss_before_ns: float
    loss_after_ns: float


class _Cell(nn.Module):
    """A GRU over windows of time, and the FIFO queue over packets."""

    def __init__(self, rate_bps: float, base_delay_ns: float) -> None:
        super().__init__()
        self.recurrent = nn.GRU(2, _HIDDEN, batch_first=True)
        self.odds = nn.Linear(_HIDDEN, _LEVELS)
        self.log_rate = nn.Parameter(torch.tensor(np.log(rate_bps), dtype=torch.float64))
        self.base_ms = nn.Parameter(torch.tensor(base_delay_ns / 1e6, dtype=torch.float64))

    def delays_ns(self, packets: "_Packets", cross_bps: Tensor, buffer_bytes: float) -> Tensor:
        """Return each packet's delay: all that came before it, less what the bottleneck could serve since it was idle.

        The running minimum is the FIFO queue's memory (Lindley's recursion in closed form), and has gradients.
        """
        rate_bps = torch.exp(self.log_rate)
        came = packets.known_before + packets.cross_before(cross_bps)
        free = came - packets.at_ns * rate_bps / 8e9
        backlog = torch.clamp(free - torch.minimum(torch.cummin(free, 0).values, torch.zeros(())), max=buffer_bytes)
        return (backlog + packets.size_bytes) * 8e9 / rate_bps + self.base_ms * 1e6


@dataclass(frozen=True)
class _Packets:
    """The packets of a log as tensors: when each was sent, and the bytes before it that are not of a window's cross.

    These are the log's own that were let in, and what was queued when the log begins.
    """

    at_ns: Tensor
    size_bytes: Tensor
    known_before: Tensor
    window: Tensor
    piece_ns: float

    @classmethod
    def of(cls, log: PacketLog, queued_bytes: float, piece_ns: int, windows: int) -> "_Packets":
        at_ns = torch.tensor(log.send_ns, dtype=torch.float64)
        size_bytes = torch.tensor(log.size_bytes, dtype=torch.float64)
        let_in = size_bytes * torch.tensor(log.arrived)
        window = torch.clamp(torch.tensor(log.send_ns // piece_ns), max=windows - 1)
        return cls(at_ns, size_bytes, queued_bytes + torch.cumsum(let_in, 0) - let_in, window, float(piece_ns))

    def cross_before(self, cross_bps: Tensor) -> Tensor:
        """Return the bytes of others before each packet, if each window's come evenly spread."""
        whole = torch.cumsum(cross_bps, 0) - cross_bps
        inside_ns = self.at_ns - self.window * self.piece_ns
        return (whole[self.window] * self.piece_ns + cross_bps[self.window] * inside_ns) / 8e9


def learn_cell(link: FittedLink, log: PacketLog, windows: int, seed: int) -> CellLink:
    """Train the cell on a log and the link that was fitted to it, and draw ``windows`` pieces of cross traffic.

    The same arguments give the same result on one machine.
    """
    log = replace(
        log,
        send_ns=log.send_ns[:_MOST_PACKETS],
        size_bytes=log.size_bytes[:_MOST_PACKETS],
        arrival_ns=log.arrival_ns[:_MOST_PACKETS],
    )
    piece_ns = link.cross_traffic.piece_ns
    seen_bps = link.cross_traffic.rate_bps[: max(1, -(-max(1, log.span_ns) // piece_ns))]
    levels_bps = torch.linspace(0.0, max(1.0, float(seen_bps.max())), _LEVELS, dtype=torch.float64)
    guide = torch.tensor(np.abs(seen_bps[:, None] - levels_bps.numpy()[None, :]).argmin(axis=1))
    packets = _Packets.of(log, link.seen.queued_bytes(0), piece_ns, len(seen_bps))
    arrived = torch.tensor(log.arrived)
    truth_ns = torch.tensor(log.delay_ns, dtype=torch.float64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        cell = _Cell(link.rate_bps, link.base_delay_ns)
        inputs = _inputs(guide)
        optimizer = torch.optim.Adam(
            [
                {"params": [*cell.recurrent.parameters(), *cell.odds.parameters()], "lr": _LEARNING_RATE},
                {"params": [cell.log_rate, cell.base_ms], "lr": _LEARNING_RATE / 100},
            ]
        )
        errors_ns = []
        for _ in range(_EPOCHS):
            optimizer.zero_grad()
            odds = cell.odds(cell.recurrent(inputs)[0][0])
            expected_bps = torch.softmax(odds.double(), 1) @ levels_bps
            delays_ns = cell.delays_ns(packets, expected_bps, link.buffer_bytes)[arrived]
            error_ns = torch.mean(torch.abs(delays_ns - truth_ns))
            errors_ns.append(float(error_ns.detach()))
            guided = nn.functional.cross_entropy(odds, guide)
            scale_ns = torch.clamp(truth_ns.std(), min=1e3)
            (error_ns / scale_ns + _GUIDE_WEIGHT * guided).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(cell.parameters(), _LARGEST_STEP)
            optimizer.step()
        drawn = _drawn(cell, levels_bps, windows)
        model = replace(
            ReplayedLink.of(link),
            rate_bps=float(torch.exp(cell.log_rate.detach())),
            base_delay_ns=max(0.0, float(cell.base_ms.detach()) * 1e6),
        )
    return CellLink(model, drawn, errors_ns[0], errors_ns[-1])


def _inputs(levels: Tensor) -> Tensor:
    """Return the cell's input at each window: the level before it, and a flag that there is one."""
    before = torch.cat([torch.zeros(1), levels[:-1].float() / (_LEVELS - 1)])
    known = torch.ones(len(levels))
    known[0] = 0.0
    return torch.stack([before, known], 1)[None]


@torch.no_grad()
def _drawn(cell: _Cell, levels_bps: Tensor, windows: int) -> Floats:
    """Let the cell run by itself: each window's level is drawn by its odds, and is the input of the next."""
    state, last, found = None, torch.zeros(1, 1, 2), []
    for _ in range(windows):
        output, state = cell.recurrent(last, state)
        level = int(torch.multinomial(torch.softmax(cell.odds(output[0, 0]), 0), 1))
        found.append(float(levels_bps[level]))
        last = torch.tensor([[[level / (_LEVELS - 1), 1.0]]])
    return np.array(found)


def replay_cell(link: FittedLink, fitted_log: PacketLog, held_out: PacketLog, seed: int) -> ReplayOutcome:
    """Train the cell on a fitted link and its log, and replay the packets held out through what it has learnt.

    torch has one thread from then on: more make a network of this size slower.
    """
    torch.set_num_threads(1)
    piece_ns = link.cross_traffic.piece_ns
    windows = max(1, -(-max(1, held_out.span_ns) // piece_ns))
    learnt = learn_cell(link, fitted_log, windows, seed)
    model = replace(learnt.model, queued_bytes=link.seen.queued_bytes(int(held_out.send_ns[0])))
    return with_cross_traffic(model, held_out, learnt.cross_bps, piece_ns, seed)
