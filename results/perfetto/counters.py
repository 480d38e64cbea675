"""Convert the samples of links, connections and GPUs into steps: each value is valid until the next one.

Values are integers, in thousandths of the quantity's unit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wanbed.results.perfetto.trial_tables import LinkCounters, Spans, TcpColumns, Texts
from wanbed.results.records.span_columns import Column
from wanbed.results.records.span_log import COMPUTE_KINDS, PREFILL

MAX_NODE_PAIRS = 64
"""The most directed node pairs that a trial shows; of more, the busiest ones."""

LINK, NODE_PAIR, GPU = "link", "node_pair", "gpu"


class Quantity(NamedTuple):
    """The name and the unit of a counter track's quantity."""

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
"""By column of the samples: its quantity, and the factor that converts the column's value to the quantity's unit."""


@dataclass(frozen=True)
class Steps:
    """One counter of one directed link or node pair, or of a GPU; then ``source`` is the GPU.

    ``thousandths[i]`` is valid from ``time_ns[i]`` on.
    """

    scope: str
    source: str
    destination: str
    quantity: Quantity
    time_ns: Column
    thousandths: Column


def link_steps(samples: LinkCounters, begin_ns: int, end_ns: int) -> Iterator[Steps]:
    """Yield throughput and backlog of every directed link, and throughput of the busiest node pairs, in a time range.

    Throughput is the wire bytes between two samples divided by the time between them: its integral over time is the
    wire bytes between the first and the last sample.
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


def tcp_steps(states: TcpColumns, begin_ns: int, end_ns: int) -> Iterator[Steps]:
    """Yield congestion windows (sum), RTT (median) and retransmissions of the node pairs with the largest windows.

    Each value is computed over the pair's connections that were sampled at the same time. Retransmissions are summed,
    and count from the opening of each connection.
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


def background_steps(samples: Sequence[Mapping[str, Any]], begin_ns: int, end_ns: int) -> Iterator[Steps]:
    """Yield the goodput of each background flow, from rows of ``wanbed.results.records.schema``.

    It is what all connections of a flow have received between two samples, divided by the time between them.
    """
    received: dict[tuple[str, str, str], dict[int, int]] = {}
    for row in samples:
        of_flow = received.setdefault((row["flow"], row["source"], row["destination"]), {})
        of_flow[row["time_ns"]] = of_flow.get(row["time_ns"], 0) + row["received_bytes"]
    for (flow, source, destination), by_time in sorted(received.items()):
        time_ns = np.array(sorted(by_time), np.int64)
        moments, rates = _throughput(time_ns, np.array([by_time[at_ns] for at_ns in time_ns.tolist()], np.int64))
        goodput = Quantity(f"goodput of {flow}", THROUGHPUT.unit)
        yield Steps(NODE_PAIR, source, destination, goodput, *within(moments, rates, begin_ns, end_ns))


def gpu_steps(samples: Sequence[Mapping[str, Any]], begin_ns: int, end_ns: int) -> Iterator[Steps]:
    """Yield NVML's figures of every GPU, from rows of ``wanbed.results.records.schema.GPU_SAMPLES`` in order of time.

    Quantities that NVML never reported are left out.
    """
    for device in sorted({row["device"] for row in samples}):
        for column, (quantity, factor) in _OF_GPUS.items():
            rows = [row for row in samples if row["device"] == device and row[column] is not None]
            if rows:
                time_ns = np.array([row["time_ns"] for row in rows], np.int64)
                thousandths = np.array([round(row[column] * factor * 1000) for row in rows], np.int64)
                yield Steps(GPU, device, "", quantity, *within(time_ns, thousandths, begin_ns, end_ns))


def busiest(amounts: list[int]) -> list[int]:
    """Return the positions of the largest amounts, at most ``MAX_NODE_PAIRS``, in ascending order."""
    return sorted(sorted(range(len(amounts)), key=lambda position: -amounts[position])[:MAX_NODE_PAIRS])


def within(time_ns: Column, values: Column, begin_ns: int, end_ns: int) -> tuple[Column, Column]:
    """Cut steps, sorted by time, to the range from ``begin_ns`` to ``end_ns``.

    The value that is valid at the beginning is placed there, and a last step at the end has the value 0. Redundant
    steps are left out: of several at the same time all but the last, and those that repeat the value before.
    """
    times = np.append(np.clip(time_ns, begin_ns, end_ns), end_ns)
    steps = np.append(values, 0)
    last = np.append(np.diff(times) != 0, True)
    times, steps = times[last], steps[last]
    changes = np.append(True, np.diff(steps) != 0)
    return times[changes], steps[changes]


def _throughput(time_ns: Column, wire_bytes: Column) -> tuple[Column, Column]:
    """Return the rate between samples in kbit/s, that is thousandths of Mbit/s; 0 after the last sample."""
    last = np.append(np.diff(time_ns) != 0, True)
    time_ns, wire_bytes = time_ns[last], wire_bytes[last]
    kbit_per_s = np.diff(wire_bytes) * 8e6 / np.diff(time_ns)
    return time_ns, np.append(np.rint(np.maximum(kbit_per_s, 0)).astype(np.int64), 0)


def _pairs(source: Texts, destination: Texts) -> list[tuple[str, str, npt.NDArray[np.intp]]]:
    """Return every directed pair in these columns, sorted by names, with the positions of its rows."""
    number = source.codes * len(destination.values) + destination.codes
    order = np.argsort(number, kind="stable")
    numbers, first = np.unique(number[order], return_index=True)
    ends = (divmod(int(each), len(destination.values)) for each in numbers)
    names = [(source.values[one], destination.values[other]) for one, other in ends]
    rows = np.split(order, first[1:]) if len(numbers) else []
    return sorted(((*name, own) for name, own in zip(names, rows, strict=True)), key=lambda pair: pair[:2])


_COMPUTED = (*COMPUTE_KINDS, PREFILL)


def contention_of(spans: Spans, facts: Mapping[str, Any]) -> Column:
    """Return ``wanbed.results.metrics.contended_ns`` of every span, by the trial's facts; 0 if it computes nothing."""
    contended = np.zeros(len(spans), np.int64)
    if not (facts.get("devices") or facts.get("gpu_assignment")):
        return contended
    # Metrics import pandas, which takes longer than writing the trace of a run that does not need them.
    from wanbed.results.metrics import contended_ns, devices_of_seats  # noqa: PLC0415

    devices = devices_of_seats(facts)
    names = {device: number for number, device in enumerate(sorted(set(devices.values())))}
    gpus = int(spans.gpu.max(initial=0)) + 1
    seat = spans.host.codes * gpus + spans.gpu
    of_seat = np.full(len(spans.host.values) * gpus, -1, np.int64)
    for position, host in enumerate(spans.host.values):
        for gpu in range(gpus):
            if (device := devices.get((host, gpu))) is not None:
                of_seat[position * gpus + gpu] = names[device]
    device_of_span = of_seat[seat]
    own = (spans.kind.mapped(lambda kind: int(kind in _COMPUTED)) == 1) & (device_of_span >= 0)
    contended[own] = contended_ns(device_of_span[own], seat[own], spans.start_ns[own], spans.end_ns[own])
    return contended
