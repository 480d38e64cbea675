"""Compute the traffic over the WAN of every node pair from the histories of the channels."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from wanbed.results.records.span_columns import Column
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.simulator.network.history import History, Rows, ServedStreams
from wanbed.runner.simulator.network.network import Ends
from wanbed.runner.simulator.network.shared_capacity import SharedCapacity
from wanbed.runner.simulator.network.shared_channel import SharedChannel
from wanbed.runner.simulator.simulation import HostTraffic
from wanbed.runner.tcp.channel import Channel
from wanbed.testbed.network.flow_model.line import Line

Crossing = tuple[Ends, Channel]
"""The two places that a channel joins, and the channel."""


class ChannelTraffic(HostTraffic):
    """The traffic of all channels of a node pair, whose line has ``line``'s headers.

    Where rates changed often, what had been sent is recovered for the times that are asked for.
    """

    def __init__(self, source: str, destination: str, histories: Sequence[History], line: Line) -> None:
        self.source, self.destination = source, destination
        self._histories = histories
        self._line = line

    def counts(self) -> tuple[Column, Column]:
        """Return what ``HostTraffic.counts`` describes."""
        return self._whole

    @cached_property
    def _whole(self) -> tuple[Column, Column]:
        stretches = [history.whole() for history in self._histories]
        times_ns = _times_ns(stretches)
        return times_ns, self._sent(stretches, times_ns)

    @property
    def last_ns(self) -> int:
        """The time at which the last byte has left."""
        return max((int(history.rows[:, 1].max(initial=0)) for history in self._histories), default=0)

    def renamed(self, source: str, destination: str) -> "ChannelTraffic":
        """Return the same traffic between two other hosts."""
        return ChannelTraffic(source, destination, self._histories, self._line)

    def sent_by(self, times_ns: Column) -> npt.NDArray[np.float64]:
        """Return what ``HostTraffic.sent_by`` describes."""
        asked_ns = np.unique(times_ns)
        changes_ns = _times_ns([history.around(asked_ns) for history in self._histories])
        near = np.unique(np.add.outer(np.searchsorted(changes_ns, asked_ns), (-1, 0)))
        near_ns = changes_ns[near[(near >= 0) & (near < len(changes_ns))]]
        sent = self._sent([history.around(near_ns) for history in self._histories], near_ns)
        return np.interp(times_ns, near_ns, sent, left=0)

    def _sent(self, stretches: Sequence[Rows], times_ns: Column) -> Column:
        """Return the bytes on the wire by each of ``times_ns``, at which the rate of one channel at least changes."""
        if len(stretches) > 1:
            return self._line.wire_bytes(np.sum([_sent_by(times_ns, rows) for rows in stretches], axis=0))
        # Stretches do not overlap: the bytes sent by a time are the sum of the stretches before it.
        _, ends, sizes = stretches[0].T
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        return self._line.wire_bytes(sums[np.searchsorted(ends, times_ns, side="right")])


def wan_traffic(variant: ResolvedVariant, crossings: Sequence[Crossing], parts: int) -> tuple[HostTraffic, ...]:
    """Return the traffic of every node pair of all ``parts`` equal parts, given the channels of the first part."""
    pipelines = variant.placement.pipelines
    size = len(pipelines) // parts
    found: dict[tuple[str, str], list[Channel]] = {}
    for (one, other), channel in crossings:
        found.setdefault((one.host.name, other.host.name), []).append(channel)
    served: dict[SharedCapacity, ServedStreams] = {}
    traffic = {
        hosts: ChannelTraffic(*hosts, [_history(channel, served) for channel in channels], channels[0].line)
        for hosts, channels in found.items()
    }
    every: list[HostTraffic] = []
    for part in range(parts):
        names = {
            place.host.name: pipelines[place.pipeline + part * size][place.stage].host.name
            for pipeline in pipelines[:size]
            for place in pipeline
        }
        for (source, destination), first in traffic.items():
            # A ring of all replicas has hosts of every part. It crosses the WAN only where there is one part.
            every.append(first.renamed(names.get(source, source), names.get(destination, destination)))
    return tuple(every)


def _history(channel: Channel, known: dict[SharedCapacity, ServedStreams]) -> History:
    if not isinstance(channel, SharedChannel):
        return History(channel.history)
    served = known.get(channel.capacity)
    if served is None:
        served = known[channel.capacity] = ServedStreams(channel.capacity.streams)
    return History(channel.history, channel.varied, served, channel.bits_ns_per_byte, channel.payload_share)


def _times_ns(stretches: Sequence[Rows]) -> Column:
    begins_ns, ends_ns = ([rows[:, column] for rows in stretches] for column in (0, 1))
    return np.unique(np.concatenate((np.zeros(1, np.int64), *begins_ns, *ends_ns)))


def part_sent(sizes: Column, moved_ns: Column, whole_ns: Column) -> Column:
    """Return how much of each size has been sent after ``moved_ns`` of ``whole_ns``, rounded down."""
    if not len(sizes) or int(sizes.max()) * int(whole_ns.max()) < 2**63:
        return sizes * moved_ns // whole_ns
    # The product would overflow 64 bits. The rounding error of a double is less than a billionth of the size.
    return np.floor(sizes * (moved_ns / whole_ns)).astype(np.int64)


def _sent_by(times: Column, stretches: Rows) -> Column:
    """Return how much had been sent by each of ``times`` in stretches that do not overlap."""
    begins, ends, sizes = stretches.T
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    stretch = np.searchsorted(ends, times, side="right")
    under_way = np.minimum(stretch, len(sizes) - 1)
    moved_ns = np.clip(times - begins[under_way], 0, None)
    whole_ns = np.maximum(ends[under_way] - begins[under_way], 1)
    part = np.where(stretch < len(sizes), part_sent(sizes[under_way], moved_ns, whole_ns), 0)
    return before[stretch] + part
