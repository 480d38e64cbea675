"""Compute the traffic over the WAN of every node pair from the histories of its channels.

A channel's history has a row for each stretch that it sent. Where the channel was a member of a stream whose rate
changed often, the bytes sent by any time are recovered from the rates of the stream.
"""

from array import array
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from math import gcd

import numpy as np
import numpy.typing as npt

from wanbed.flow.channel import Channel
from wanbed.flow.line import Line
from wanbed.flow.shared_capacity import SharedCapacity
from wanbed.flow.shared_channel import SharedChannel
from wanbed.flow.stream import BITS_NS, VARIED_NUMBERS, Stream
from wanbed.results.records.span_columns import Column
from wanbed.runner.simulator.channels.network import Ends, Network, Variant
from wanbed.runner.simulator.simulation import HostTraffic
from wanbed.workloads.transport.frame import HEADER_BYTES
from wanbed.workloads.transport.warm_connections import KEEP_WARM_NS

Rows = npt.NDArray[np.int64]
_Numbers = npt.NDArray[np.int64]

_TIME_BITS = 20
"""A rate times a time is computed in two parts, because the product would overflow 64 bits."""

_MOST_PRODUCT = 1 << 62
_NONE: "array[int]" = array("q")


class _Served:
    """The service of a stream until each of its changes: whole bytes, and the rest in bits x 10^9."""

    def __init__(self, stream: Stream) -> None:
        self.times_ns = np.frombuffer(stream.times_ns, np.int64)
        lasting_ns, rates_bps = np.diff(self.times_ns), np.frombuffer(stream.rates_bps, np.int64)[:-1]
        most_ns = max(int(lasting_ns.max(initial=0)) >> _TIME_BITS, 1 << _TIME_BITS)
        if int(rates_bps.max(initial=0)) * most_ns > _MOST_PRODUCT:
            # Python's numbers have no limit.
            lasting_ns, rates_bps = lasting_ns.astype(object), rates_bps.astype(object)
        coarse = rates_bps * (lasting_ns >> _TIME_BITS)
        fine = rates_bps * (lasting_ns & ((1 << _TIME_BITS) - 1))
        shifted = (coarse % BITS_NS) << _TIME_BITS
        whole = ((coarse // BITS_NS) << _TIME_BITS) + shifted // BITS_NS + fine // BITS_NS
        rest = np.cumsum(shifted % BITS_NS + fine % BITS_NS)
        zero = np.zeros(1, np.int64)
        self.bytes = np.concatenate((zero, np.cumsum(whole) + rest // BITS_NS))
        self.bits_ns = np.concatenate((zero, rest % BITS_NS))


class ServedStreams:
    """The service of each stream of a simulation, found out when it is asked for."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._streams = streams
        self._known: dict[int, _Served] = {}

    def __getitem__(self, number: int) -> _Served:
        """Return the service of a stream."""
        if number not in self._known:
            self._known[number] = _Served(self._streams[number])
        return self._known[number]


class History:
    """The stretches in which a channel sent. ``rows`` has start, end and bytes of each; they do not overlap.

    In the stretches of ``varied`` (see ``Sender.varied``) the rate was that of one of the streams ``served``. A byte of
    payload takes ``bits_ns_per_byte``, counted as ``payload_share`` times what streams serve.
    """

    def __init__(
        self,
        rows: "array[int]",
        varied: "array[int]" = _NONE,
        served: ServedStreams | None = None,
        bits_ns_per_byte: int = BITS_NS,
        payload_share: int = 1,
    ) -> None:
        self.rows = np.frombuffer(rows, np.int64).reshape(-1, 3)
        self._varied = np.frombuffer(varied, np.int64).reshape(-1, VARIED_NUMBERS)
        self._served = served or ServedStreams(())
        # Times so many, a byte of payload takes whole bytes.
        self._units = BITS_NS // gcd(bits_ns_per_byte, BITS_NS)
        self._bits_ns_per_byte, self._payload_share = bits_ns_per_byte * self._units, payload_share * self._units

    def whole(self) -> Rows:
        """Return all stretches, each of one rate."""
        return self._cut([(row, self._changes(row)) for row in self._varied])

    def around(self, times_ns: Column) -> Rows:
        """Return stretches of which those before and after each of ``times_ns``, ascending, have one rate.

        Others may be joined into one.
        """
        first = np.searchsorted(times_ns, self.rows[self._varied[:, 0], 0])
        last = np.searchsorted(times_ns, self.rows[self._varied[:, 0], 1], side="right")
        asked = np.flatnonzero(first < last)
        return self._cut(
            [(self._varied[each], self._near(self._varied[each], times_ns[first[each] : last[each]])) for each in asked]
        )

    def _near(self, row: _Numbers, times_ns: Column) -> _Numbers:
        """Return the numbers of the stream's changes inside a stretch that are nearest to ``times_ns``."""
        changes = self._changes(row)
        after = np.searchsorted(self._served[row[1]].times_ns[changes], times_ns)
        near = np.unique(np.add.outer(after, (-1, 0, 1)))
        return np.asarray(changes[near[(near >= 0) & (near < len(changes))]], np.int64)

    def _changes(self, row: _Numbers) -> _Numbers:
        """Return the numbers of the stream's changes inside a stretch."""
        number, stream, before, last = row[:4].tolist()
        begin_ns, end_ns, _ = self.rows[number]
        times_ns = self._served[stream].times_ns[before + 1 : last + 1]
        first, end = np.searchsorted(times_ns, begin_ns, side="right"), np.searchsorted(times_ns, end_ns)
        return np.arange(before + 1 + int(first), before + 1 + int(end))

    def _cut(self, cuts: Sequence[tuple[_Numbers, _Numbers]]) -> Rows:
        """Return all stretches, each varied one that is given cut at the given changes of its stream."""
        if not cuts:
            return self.rows
        pieces, done = [], 0
        for row, changes in cuts:
            number = int(row[0])
            begin_ns, end_ns, size_bytes = self.rows[number]
            times_ns = np.concatenate(([begin_ns], self._served[row[1]].times_ns[changes], [end_ns]))
            gone = np.concatenate(([0], self._gone(row, changes), [size_bytes]))
            pieces += [self.rows[done:number], np.column_stack((times_ns[:-1], times_ns[1:], np.diff(gone)))]
            done = number + 1
        return np.concatenate([*pieces, self.rows[done:]])

    def _gone(self, row: _Numbers, changes: _Numbers) -> _Numbers:
        """Return the whole bytes of a stretch that had left at changes of its stream."""
        _, stream, _, _, threshold_bytes, threshold_bits_ns, unnoted = row.tolist()
        served, frame = self._served[stream], self._bits_ns_per_byte // BITS_NS
        payload = self._payload_share * served.bytes[changes]
        rest = threshold_bits_ns * self._units - self._payload_share * served.bits_ns[changes]
        rest -= (payload % frame) * BITS_NS
        left = threshold_bytes - payload // frame - -rest // self._bits_ns_per_byte
        return np.asarray(unnoted - np.maximum(left, 0), np.int64)


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
        """Return times and bytes, as ``HostTraffic.counts`` does."""
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
        """Return the bytes sent by each time, as ``HostTraffic.sent_by`` does."""
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


def wan_traffic(network: Network[Variant], crossings: Sequence[Crossing], parts: int) -> tuple[HostTraffic, ...]:
    """Return the traffic of every node pair of all ``parts`` equal parts, given the channels of the first part."""
    pipelines = network.variant.placement.pipelines
    size = len(pipelines) // parts
    found: dict[tuple[str, str], list[Crossing]] = {}
    for crossing in crossings:
        one, other = crossing[0]
        found.setdefault((one.host.name, other.host.name), []).append(crossing)
    served: dict[SharedCapacity, ServedStreams] = {}
    traffic = {}
    for hosts, crossed in found.items():
        histories = [_history(channel, served) for _, channel in crossed]
        if network.variant.tcp.keep_warm:
            histories += [
                _between(history, network.of(ends), ends) for history, (ends, _) in zip(histories, crossed, strict=True)
            ]
        traffic[hosts] = ChannelTraffic(*hosts, histories, crossed[0][1].line)
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


def _between(history: History, network: Network[Variant], ends: Ends) -> History:
    """Return the payload that is as large on the wire as the frames that keep a channel's connections warm meanwhile.

    Those of a connection that pauses while others of its channel send are left out.
    """
    line, interval_ns = network.line(ends), round(KEEP_WARM_NS / network.dilation)
    frame_bytes = Fraction(HEADER_BYTES)
    if line.headers:
        frame_bytes = (HEADER_BYTES + line.frame_bytes - line.payload_bytes) * Fraction(
            line.payload_bytes, line.frame_bytes
        )
    begins_ns, ends_ns = history.rows[:-1, 1], history.rows[1:, 0]
    frames = network.connections_between(ends) * ((ends_ns - begins_ns) // interval_ns)
    rows = np.column_stack((begins_ns, ends_ns, frames * frame_bytes.numerator // frame_bytes.denominator))
    return History(array("q", rows[frames > 0].astype(np.int64).tobytes()))


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
    if not len(stretches):
        return np.zeros(len(times), np.int64)
    begins, ends, sizes = stretches.T
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    stretch = np.searchsorted(ends, times, side="right")
    under_way = np.minimum(stretch, len(sizes) - 1)
    moved_ns = np.clip(times - begins[under_way], 0, None)
    whole_ns = np.maximum(ends[under_way] - begins[under_way], 1)
    part = np.where(stretch < len(sizes), part_sent(sizes[under_way], moved_ns, whole_ns), 0)
    return before[stretch] + part
