"""What crossed the WAN, host by host, read off the channels."""

from collections.abc import Sequence

import numpy as np

from results.span_columns import Column
from runner.resolved_variant import ResolvedVariant
from runner.simulator.channel import Channel
from runner.simulator.network import Ends
from runner.simulator.simulation import WanTraffic

Crossing = tuple[Ends, Channel]
"""Between which places a channel leads, and the channel."""


def wan_traffic(variant: ResolvedVariant, crossings: Sequence[Crossing], parts: int) -> tuple[WanTraffic, ...]:
    """The traffic of every node pair, of all the equal parts of which the first one's channels are given."""
    pipelines = variant.placement.pipelines
    size = len(pipelines) // parts
    found: dict[tuple[str, str], list[Channel]] = {}
    for (one, other), channel in crossings:
        found.setdefault((one.host.name, other.host.name), []).append(channel)
    traffic = {hosts: _cumulative(*hosts, channels) for hosts, channels in found.items()}
    every = []
    for part in range(parts):
        names = {
            place.host.name: pipelines[place.pipeline + part * size][place.stage].host.name
            for pipeline in pipelines[:size]
            for place in pipeline
        }
        for (source, destination), first in traffic.items():
            # A ring of all replicas has hosts of every part: it crosses the WAN only where there is one part.
            ends = names.get(source, source), names.get(destination, destination)
            every.append(WanTraffic(*ends, first.times_ns, first.wire_bytes))
    return tuple(every)


def part_sent(size: int, moved_ns: Column, whole_ns: int) -> Column:
    """How much of ``size`` has gone after so long of the whole time, rounded down."""
    if size * whole_ns < 2**63:
        return size * moved_ns // whole_ns
    # The product would not fit in 64 bits: what a double rounds is less than a billionth of the size.
    return np.floor(size * (moved_ns / whole_ns)).astype(np.int64)


def _cumulative(source: str, destination: str, channels: Sequence[Channel]) -> WanTraffic:
    """The sum of several channels' histories, as a count that grows evenly between its times."""
    line = channels[0].line
    history = np.concatenate([np.frombuffer(channel.history, np.int64).reshape(-1, 3) for channel in channels])
    begins, ends, sizes = history.T
    times = np.unique(np.concatenate((np.zeros(1, np.int64), begins, ends)))
    if len(channels) == 1:
        # Stretches follow each other: what had left by then is the sum of those before.
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        payload = sums[np.searchsorted(ends, times, side="right")]
    else:
        payload = np.zeros(len(times), np.int64)
        for begin, end, size in history:
            moved = np.clip(times, begin, end) - begin
            payload += np.where(times >= end, size, part_sent(int(size), moved, max(int(end - begin), 1)))
    return WanTraffic(source, destination, times, line.wire_bytes(payload))
