"""Logs of links whose truth is known: a FIFO queue served packet by packet, with seeded cross traffic."""

import math
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wanbed.runner.learnt_links.csv_log import HEADER
from wanbed.runner.learnt_links.packet_log import LOST_NS, PacketLog, from_first


@dataclass(frozen=True)
class KnownLink:
    """The truth behind a log. ``busy`` and ``idle`` are mean durations of the cross traffic's two states."""

    base_delay_s: float = 0.030
    rate_bps: float = 20e6
    buffer_bytes: int = 60_000
    cross_bps: float = 16e6
    busy_s: float = 0.8
    idle_s: float = 0.8
    random_loss: float = 0.0
    lost_behind: bool = True
    """Whether packets that are lost at random have been served before."""
    noise_s: float = 0.0
    standing_bytes: int = 0
    """What others have queued when the log begins."""


def known_log(
    link: KnownLink, seconds: float = 60.0, seed: int = 1, sizes_bytes: tuple[int, int] = (300, 1200)
) -> PacketLog:
    """Return what a probe of 100 packets a second and a train of 40 each half second would log on this link.

    Single packets have either of the sizes, those of trains the second.
    """
    draw = random.Random(seed)
    events = sorted([*_probe(draw, seconds, sizes_bytes), *_cross(draw, link, seconds)])
    free_s, backlog = 0.0, 0
    queue: deque[tuple[float, int]] = deque()
    for _ in range(link.standing_bytes // 1500):
        free_s, backlog = free_s + 1500 * 8 / link.rate_bps, backlog + 1500
        queue.append((free_s, 1500))
    rows: list[tuple[float, int, float | None]] = []
    for at_s, size, own in events:
        while queue and queue[0][0] <= at_s:
            backlog -= queue.popleft()[1]
        # What is left of the packet in service counts in full, as it does in a kernel's byte limit.
        arrival_s = None
        if backlog + size <= link.buffer_bytes:
            lost = draw.random() < link.random_loss and own
            if not lost or link.lost_behind:
                free_s = max(free_s, at_s) + size * 8 / link.rate_bps
                queue.append((free_s, size))
                backlog += size
            if not lost:
                arrival_s = free_s + link.base_delay_s + abs(draw.gauss(0, link.noise_s))
        if own:
            rows.append((at_s, size, arrival_s))
    send_s, sizes, arrivals_s = zip(*rows, strict=True)
    return from_first(
        np.array([round(each * 1e9) for each in send_s], dtype=np.int64),
        np.array(sizes, dtype=np.int64),
        np.array([LOST_NS if each is None else round(each * 1e9) for each in arrivals_s], dtype=np.int64),
    )


def write_log(log: PacketLog, path: Path) -> Path:
    """Write a log as a CSV file, and return its path."""
    rows = zip(log.send_ns, log.size_bytes, log.arrival_ns, strict=True)
    lines = (f"{send / 1e9:.9f},{size},{'' if at == LOST_NS else f'{at / 1e9:.9f}'}" for send, size, at in rows)
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return path


def _probe(draw: random.Random, seconds: float, sizes_bytes: tuple[int, int]) -> Iterator[tuple[float, int, bool]]:
    at_s = 0.0
    while at_s < seconds:
        yield at_s, draw.choice(sizes_bytes), True
        at_s += draw.expovariate(100)
    for start in range(int(seconds * 2)):
        for number in range(40):
            yield start / 2 + 0.1 + number * 0.0001, sizes_bytes[1], True


def _cross(draw: random.Random, link: KnownLink, seconds: float) -> Iterator[tuple[float, int, bool]]:
    at_s, busy = 0.0, True
    while at_s < seconds:
        until_s = at_s + draw.expovariate(1 / (link.busy_s if busy else link.idle_s))
        while busy and link.cross_bps and at_s < min(until_s, seconds):
            yield at_s, 1500, False
            at_s += -math.log(1 - draw.random()) * 1500 * 8 / link.cross_bps
        at_s, busy = max(at_s, until_s), not busy
