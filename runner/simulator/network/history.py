"""Recover what a channel had sent by any time, also while the rate of its stream changed many times."""

from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from wanbed.results.records.span_columns import Column
from wanbed.runner.simulator.network.stream import BITS_NS, VARIED_NUMBERS, Stream

Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]

_TIME_BITS = 20
"""A rate times a time is computed in two parts, because the product would overflow 64 bits."""
_MOST_PRODUCT = 1 << 62
_NONE: "array[int]" = array("q")


class Served:
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
        self._known: dict[int, Served] = {}

    def __getitem__(self, number: int) -> Served:
        """Return what a stream had served."""
        if number not in self._known:
            self._known[number] = Served(self._streams[number])
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
        self._bits_ns_per_byte, self._payload_share = bits_ns_per_byte, payload_share

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

    def _near(self, row: Numbers, times_ns: Column) -> Numbers:
        """Return the numbers of the stream's changes inside a stretch that are nearest to ``times_ns``."""
        changes = self._changes(row)
        after = np.searchsorted(self._served[row[1]].times_ns[changes], times_ns)
        near = np.unique(np.add.outer(after, (-1, 0, 1)))
        return np.asarray(changes[near[(near >= 0) & (near < len(changes))]], np.int64)

    def _changes(self, row: Numbers) -> Numbers:
        """Return the numbers of the stream's changes inside a stretch."""
        number, stream, before, last = row[:4].tolist()
        begin_ns, end_ns, _ = self.rows[number]
        times_ns = self._served[stream].times_ns[before + 1 : last + 1]
        first, end = np.searchsorted(times_ns, begin_ns, side="right"), np.searchsorted(times_ns, end_ns)
        return np.arange(before + 1 + int(first), before + 1 + int(end))

    def _cut(self, cuts: Sequence[tuple[Numbers, Numbers]]) -> Rows:
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

    def _gone(self, row: Numbers, changes: Numbers) -> Numbers:
        """Return the whole bytes of a stretch that had left at changes of its stream."""
        _, stream, _, _, threshold_bytes, threshold_bits_ns, unnoted = row.tolist()
        served, frame = self._served[stream], self._bits_ns_per_byte // BITS_NS
        payload = self._payload_share * served.bytes[changes]
        rest = threshold_bits_ns - (payload % frame) * BITS_NS - self._payload_share * served.bits_ns[changes]
        left = threshold_bytes - payload // frame - -rest // self._bits_ns_per_byte
        return np.asarray(unnoted - np.maximum(left, 0), np.int64)
