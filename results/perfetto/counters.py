"""Turn the samples of links, connections and GPUs over time into steps: a value holds until the next.

Values are integers, thousandths of the unit in the track's name.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from results.perfetto.trial_tables import LinkCounters, TcpStates, Texts
from results.records.span_columns import Column

MAX_NODE_PAIRS = 64
"""Directed pairs of hosts that a trial shows; of more, those that sent the most."""

LINK, NODE_PAIR, GPU = "link", "node_pair", "gpu"


class Quantity(NamedTuple):
    """The quantity that a counter track shows, and its unit."""

    name: str
    unit: str


THROUGHPUT = Quantity("throughput", "Mbit/s")
BACKLOG = Quantity("backlog", "bytes")
WINDOW = Quantity("TCP windows", "bytes")
RTT = Quantity("TCP median RTT", "ms")
RETRANSMISSIONS = Quantity("TCP retransmissions", "segments")


_OF_GPUS = {
    "utilization": (Quantity("NVML utilization", "%"), 100),
    "memory_used_bytes": (Quantity("memory used", "bytes"), 1),
    "power_w": (Quantity("power", "W"), 1),
    "sm_clock_hz": (Quantity("SM clock", "MHz"), 1e-6),
    "memory_clock_hz": (Quantity("memory clock", "MHz"), 1e-6),
    "temperature_c": (Quantity("temperature", "degrees C"), 1),
}
"""By column of the samples: what it is called, and its value in the unit."""


@dataclass(frozen=True)
class Steps:
    """One counter of one directed link or node pair, or of a GPU, which is its source.

    ``thousandths[i]`` holds from ``time_ns[i]`` on.
    """

    scope: str
    source: str
    destination: str
    quantity: Quantity
    time_ns: Column
    thousandths: Column


def link_steps(samples: LinkCounters, begin_ns: int, end_ns: int) -> Iterator[Steps]:
    """Yield throughput and backlog of every directed link, and throughput of the busiest node pairs, begin to end.

    Throughput is the wire bytes between two samples over the time between them: their integral over time is the bytes
    on the wire between the first and the last sample.
    """
    for scope in (LINK, NODE_PAIR):
        own = samples.scope.equal(scope)
        pairs = _pairs(samples.source[own], samples.destination[own])
        time_ns, wire_bytes, backlog = samples.time_ns[own], samples.wire_bytes[own], samples.backlog_bytes[own]
        ordered = [rows[np.argsort(time_ns[rows], kind="stable")] for _, _, rows in pairs]
        if scope == NODE_PAIR:
            shown = busiest([int(wire_bytes[rows[-1]] - wire_bytes[rows[0]]) for rows in ordered])
        else:
            shown = list(range(len(pairs)))
        for position in shown:
            source, destination, _ = pairs[position]
            rows = ordered[position]
            moments, rates = _throughput(time_ns[rows], wire_bytes[rows])
            yield Steps(scope, source, destination, THROUGHPUT, *within(moments, rates, begin_ns, end_ns))
            if scope == LINK:
                levels = within(time_ns[rows], backlog[rows] * 1000, begin_ns, end_ns)
                yield Steps(scope, source, destination, BACKLOG, *levels)


def tcp_steps(states: TcpStates, begin_ns: int, end_ns: int) -> Iterator[Steps]:
    """Yield congestion windows (sum), RTT (median) and retransmissions of the node pairs with the largest windows.

    Over the pair's connections that were sampled at the same time. Retransmissions count from a connection's opening.
    """
    pairs = _pairs(states.source, states.destination)
    windows = states.cwnd_segments * states.mss_bytes
    for position in busiest([int(windows[rows].sum()) for _, _, rows in pairs]):
        source, destination, rows = pairs[position]
        rows = rows[np.lexsort((states.rtt_ns[rows], states.time_ns[rows]))]
        moments, first, count = np.unique(states.time_ns[rows], return_index=True, return_counts=True)
        rtt_ns = states.rtt_ns[rows]
        median_ns = (rtt_ns[first + (count - 1) // 2] + rtt_ns[first + count // 2]) // 2
        levels = (
            (WINDOW, np.add.reduceat(windows[rows], first) * 1000),
            (RTT, median_ns // 1000),
            (RETRANSMISSIONS, np.add.reduceat(states.retransmitted_segments[rows], first) * 1000),
        )
        for quantity, values in levels:
            yield Steps(NODE_PAIR, source, destination, quantity, *within(moments, values, begin_ns, end_ns))


def gpu_steps(samples: Sequence[Mapping[str, Any]], begin_ns: int, end_ns: int) -> Iterator[Steps]:
    """Yield what NVML reported of every GPU, from rows of ``results.records.schema.GPU_SAMPLES`` by time.

    Quantities that NVML never reported are left out.
    """
    for device in sorted({row["device"] for row in samples}):
        for column, (quantity, factor) in _OF_GPUS.items():
            lines = [row for row in samples if row["device"] == device and row[column] is not None]
            if lines:
                time_ns = np.array([row["time_ns"] for row in lines], np.int64)
                thousandths = np.array([round(row[column] * factor * 1000) for row in lines], np.int64)
                yield Steps(GPU, device, "", quantity, *within(time_ns, thousandths, begin_ns, end_ns))


def busiest(amounts: list[int]) -> list[int]:
    """Return the positions of the largest amounts, at most ``MAX_NODE_PAIRS``, in their order."""
    return sorted(sorted(range(len(amounts)), key=lambda position: -amounts[position])[:MAX_NODE_PAIRS])


def within(time_ns: Column, values: Column, begin_ns: int, end_ns: int) -> tuple[Column, Column]:
    """Cut steps by time to what lies between.

    The value that held at the begin stands there, and at the end the steps close with 0. A value at the time of a later
    one, and one like that before it, add nothing and are left out.
    """
    times = np.append(np.clip(time_ns, begin_ns, end_ns), end_ns)
    steps = np.append(values, 0)
    last = np.append(np.diff(times) != 0, True)
    times, steps = times[last], steps[last]
    changes = np.append(True, np.diff(steps) != 0)
    return times[changes], steps[changes]


def _throughput(time_ns: Column, wire_bytes: Column) -> tuple[Column, Column]:
    """Return the rate between samples in kbit/s, thousandths of Mbit/s; 0 from the last on."""
    last = np.append(np.diff(time_ns) != 0, True)
    time_ns, wire_bytes = time_ns[last], wire_bytes[last]
    kbit_per_s = np.diff(wire_bytes) * 8e6 / np.diff(time_ns)
    return time_ns, np.append(np.rint(np.maximum(kbit_per_s, 0)).astype(np.int64), 0)


def _pairs(source: Texts, destination: Texts) -> list[tuple[str, str, npt.NDArray[np.intp]]]:
    """Return every directed pair that there is, by name, with its rows."""
    number = source.codes * len(destination.values) + destination.codes
    order = np.argsort(number, kind="stable")
    numbers, first = np.unique(number[order], return_index=True)
    ends = (divmod(int(each), len(destination.values)) for each in numbers)
    names = [(source.values[one], destination.values[other]) for one, other in ends]
    rows = np.split(order, first[1:]) if len(numbers) else []
    return sorted(((*name, own) for name, own in zip(names, rows, strict=True)), key=lambda pair: pair[:2])
