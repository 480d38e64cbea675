"""Compute the traffic over the WAN of every node pair from the histories of the channels."""

from collections.abc import Sequence

import numpy as np

from results.records.span_columns import Column
from runner.resolve.resolved_variant import ResolvedVariant
from runner.simulator.network.network import Ends
from runner.simulator.simulation import WanTraffic
from runner.tcp.channel import Channel

Crossing = tuple[Ends, Channel]
"""The two places that a channel joins, and the channel."""


def wan_traffic(variant: ResolvedVariant, crossings: Sequence[Crossing], parts: int) -> tuple[WanTraffic, ...]:
    """Return the traffic of every node pair of all ``parts`` equal parts, given the channels of the first part."""
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
            # A ring of all replicas has hosts of every part. It crosses the WAN only where there is one part.
            ends = names.get(source, source), names.get(destination, destination)
            every.append(WanTraffic(*ends, first.times_ns, first.wire_bytes))
    return tuple(every)


def part_sent(sizes: Column, moved_ns: Column, whole_ns: Column) -> Column:
    """Return how much of each size has been sent after ``moved_ns`` of ``whole_ns``, rounded down."""
    if not len(sizes) or int(sizes.max()) * int(whole_ns.max()) < 2**63:
        return sizes * moved_ns // whole_ns
    # The product would overflow 64 bits. The rounding error of a double is less than a billionth of the size.
    return np.floor(sizes * (moved_ns / whole_ns)).astype(np.int64)


def _cumulative(source: str, destination: str, channels: Sequence[Channel]) -> WanTraffic:
    """Return the sum of several channels' histories, as a byte count that grows linearly between its times."""
    line = channels[0].line
    history = np.concatenate([np.frombuffer(channel.history, np.int64).reshape(-1, 3) for channel in channels])
    begins, ends, sizes = history.T
    times = np.unique(np.concatenate((np.zeros(1, np.int64), begins, ends)))
    if len(channels) == 1:
        # Stretches do not overlap: the bytes sent by a time are the sum of the stretches before it.
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        payload = sums[np.searchsorted(ends, times, side="right")]
    else:
        payload = np.sum([_sent_by(times, channel) for channel in channels], axis=0)
    return WanTraffic(source, destination, times, line.wire_bytes(payload))


def _sent_by(times: Column, channel: Channel) -> Column:
    """Return how much one channel, whose stretches do not overlap, had sent by each of ``times``."""
    begins, ends, sizes = np.frombuffer(channel.history, np.int64).reshape(-1, 3).T
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    stretch = np.searchsorted(ends, times, side="right")
    under_way = np.minimum(stretch, len(sizes) - 1)
    moved_ns = np.clip(times - begins[under_way], 0, None)
    whole_ns = np.maximum(ends[under_way] - begins[under_way], 1)
    part = np.where(stretch < len(sizes), part_sent(sizes[under_way], moved_ns, whole_ns), 0)
    return before[stretch] + part
