"""Sample connections, links, GPUs and machines during a trial; each kind has a sampler in ``SAMPLERS``.

NVML is a cross-check only: busy times come from spans. Its utilization is the fraction of the last 1/6 to 1 s in which
a kernel ran. A waiting kernel counts, so it shows no bubbles.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Self

from wanbed.results.records.schema import GpuSample, LinkSample, TcpSample
from wanbed.results.records.trial_table import TrialTable
from wanbed.results.records.trial_tables import GPU_TABLE, LINK_TABLE, TCP_TABLE
from wanbed.runner.companions.telemetry.on_hosts.sampling import Sampler
from wanbed.runner.resolve.dilation import undilated_ns
from wanbed.testbed.gpus.gpus import GpuReadings, ReadsGpus
from wanbed.testbed.gpus.nvml import NvmlReading
from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.kernel.link_counters import Counters, PortCounters
from wanbed.testbed.kernel.processors import CpuTimes
from wanbed.testbed.kernel.tcp import TcpState, TcpStates, tcp_states
from wanbed.testbed.running_testbed import RunningTestbed


class GpuSampler(Sampler[GpuReadings]):
    """Read the GPUs that hosts own.

    If a GPU cannot be read, its readings end but the trial continues: no figure needs them. Its fault is in the facts.
    """

    interval_s = 0.2
    """5 readings a second, which is how often NVML has new values."""

    def __init__(self, reader: ReadsGpus) -> None:
        self._reader = reader

    @classmethod
    def of(cls, testbed: RunningTestbed, ending: ExitStack) -> Self | None:
        """Return a sampler of all GPUs that hosts own, None if they own none."""
        reader = testbed.gpu_reader()
        if reader is None:
            return None
        ending.callback(reader.close)
        return cls(reader)

    def read(self) -> GpuReadings | None:
        """Read every GPU that has answered so far; None if there is no reading."""
        return self._reader.read() or None

    def tables(self, readings: Sequence[tuple[int, GpuReadings]], _: float) -> dict[TrialTable, list[GpuSample]]:
        """Return one row per GPU and reading."""
        return {GPU_TABLE: [_gpu_sample(time_ns, *each) for time_ns, found in readings for each in found]}

    def facts(self, _: Sequence[tuple[int, GpuReadings]]) -> dict[str, Any]:
        """Return the reason why readings are missing, {} if none is."""
        faults = self._reader.faults
        return {"nvml_fault": "; ".join(faults)} if faults else {}


def _gpu_sample(time_ns: int, uuid: str, reading: NvmlReading) -> GpuSample:
    return GpuSample(
        time_ns=time_ns,
        device=uuid,
        utilization=reading.utilization,
        memory_used_bytes=reading.memory_used_bytes,
        power_w=reading.power_w,
        sm_clock_hz=reading.sm_clock_hz,
        memory_clock_hz=reading.memory_clock_hz,
        temperature_c=reading.temperature_c,
        throttled=", ".join(reading.throttled),
    )


Ports = list[PortCounters]


class LinkSampler(Sampler[Ports]):
    """Read the counters of all WAN ports at once."""

    interval_s = 0.08
    """12.5 readings a second, so that there are at least 10 even if some are late."""

    def __init__(self, read_counters: Callable[[], Ports]) -> None:
        self._read_counters = read_counters

    @classmethod
    def of(cls, testbed: RunningTestbed, _: ExitStack) -> Self:
        """Return a sampler of this testbed's links."""
        return cls(testbed.read_counters)

    def read(self) -> Ports:
        """Read the counters of every port. Raise SubstrateError if they cannot be read."""
        return self._read_counters()

    def tables(self, readings: Sequence[tuple[int, Ports]], _: float) -> dict[TrialTable, list[LinkSample]]:
        """Return rows with counters relative to the first reading.

        Every directed link has rows. A directed node pair has rows only if it carried traffic.
        """
        return {LINK_TABLE: _samples(readings)}


def _samples(readings: Sequence[tuple[int, Ports]]) -> list[LinkSample]:
    samples = []
    first, last = readings[0][1], readings[-1][1]
    for number, (start, end) in enumerate(zip(first, last, strict=True)):
        used = [pair for pair, counters in end.pairs.items() if counters.wire_bytes > start.pairs[pair].wire_bytes]
        for time_ns, ports in readings:
            port = ports[number]
            samples.append(_link_sample(time_ns, "link", (port.source, port.destination), port.total, start.total))
            samples += [_link_sample(time_ns, "node_pair", pair, port.pairs[pair], start.pairs[pair]) for pair in used]
    return samples


def _link_sample(time_ns: int, scope: str, ends: tuple[str, str], now: Counters, start: Counters) -> LinkSample:
    packets = None if now.packets is None or start.packets is None else now.packets - start.packets
    return LinkSample(
        time_ns=time_ns,
        scope=scope,
        source=ends[0],
        destination=ends[1],
        wire_bytes=now.wire_bytes - start.wire_bytes,
        packets=packets,
        backlog_bytes=now.backlog_bytes,
        drops=now.drops - start.drops,
    )


SATURATED = 0.95
"""From this load on, packets and ranks wait for cores."""


@dataclass(frozen=True)
class SampledLoad:
    """The load of a machine during a trial, or the measured part of it; all values are fractions.

    ``busy`` is the mean load of the cores. ``saturated`` is the fraction of quarter seconds with a load above 95 %.
    ``network`` is the fraction of the trial that one core spent on the emulated network, None if it is not known.
    """

    busy: float
    saturated: float
    network: float | None


@dataclass(frozen=True)
class LoadReading:
    """CPU times at one moment: of all cores, and what the network took so far, None if it is not known."""

    time_s: float
    cores: CpuTimes
    network_s: float | None


Loads = Mapping[str, LoadReading]
"""A reading of each machine, by the names that ``RunningTestbed.cpu_times`` has."""


class LoadSampler(Sampler[Loads]):
    """Read the CPU times of every machine. The busiest one counts: packets and ranks wait for its cores."""

    interval_s = 0.25
    reads_at_end = False
    of_measured_part = True

    def __init__(self, testbed: RunningTestbed) -> None:
        self._testbed = testbed

    @classmethod
    def of(cls, testbed: RunningTestbed, _: ExitStack) -> Self | None:
        """Return a sampler of all machines, None in virtual time, where compute costs no time."""
        return None if in_virtual_time() else cls(testbed)

    def read(self) -> Loads:
        """Read the current CPU times."""
        time_s, cores = time.monotonic(), self._testbed.cpu_times()
        network_s = self._testbed.network_cpu_time_s()
        return {name: LoadReading(time_s, each, network_s) for name, each in cores.items()}

    def facts(self, readings: Sequence[tuple[int, Loads]]) -> dict[str, Any]:
        """Return the load of the busiest machine, null for a trial below a quarter second, and of each with a name."""
        machines = readings[0][1] if readings else {}
        found = {name: machine_load([reading[name] for _, reading in readings]) for name in machines}
        loads = {name: load for name, load in found.items() if load is not None}
        busiest = max(loads.values(), key=lambda load: (load.saturated, load.busy), default=None)
        named = {"machine_loads": {name: asdict(load) for name, load in loads.items()}} if any(machines) else {}
        return {"machine_load": None if busiest is None else asdict(busiest), **named}


def machine_load(readings: Sequence[LoadReading]) -> SampledLoad | None:
    """Return the load between the first and the last of these readings, None if they span no window."""
    windows = [busy for one, other in pairwise(readings) if (busy := other.cores.busy_since(one.cores)) is not None]
    if not windows:
        return None
    first, last = readings[0], readings[-1]
    network = None
    if first.network_s is not None and last.network_s is not None:
        network = (last.network_s - first.network_s) / (last.time_s - first.time_s)
    return SampledLoad(
        last.cores.busy_since(first.cores) or 0.0,
        sum(window > SATURATED for window in windows) / len(windows),
        network,
    )


RDMA_FACT = "rdma_sent_bytes"


class RdmaSampler(Sampler[Mapping[str, int]]):
    """Read the counters of all ports that send, of this machine or of every machine of a rack."""

    interval_s = 60.0
    """Only the first and the last reading count."""

    def __init__(self, read_sent: Callable[[], Mapping[str, int]]) -> None:
        self._read_sent = read_sent

    @classmethod
    def of(cls, testbed: RunningTestbed, _: ExitStack) -> Self | None:
        """Return a sampler, None where no machine has a port that counts."""
        if in_virtual_time():
            return None
        return cls(testbed.rdma_sent_bytes) if testbed.rdma_sent_bytes() else None

    def read(self) -> Mapping[str, int]:
        """Read every port's counter."""
        return self._read_sent()

    def facts(self, readings: Sequence[tuple[int, Mapping[str, int]]]) -> dict[str, Any]:
        """Return how many bytes each port has sent during the trial."""
        first, last = readings[0][1], readings[-1][1]
        return {RDMA_FACT: {name: sent - first.get(name, sent) for name, sent in last.items()}}


Round = list[memoryview]
"""One kernel message for each end of each connection."""


class TcpSampler(Sampler[Round]):
    """Query every host in turn. ``hosts`` maps each address to its host's name.

    Rounds without connections are not stored. There is no reading at the end, because the ranks' sockets are closed.
    """

    interval_s = 0.4
    max_core_share = 0.02
    max_readings = 300
    reads_at_end = False

    def __init__(self, reader: TcpStates, hosts: Mapping[str, str]) -> None:
        self._reader = reader
        self._hosts = hosts

    @classmethod
    def of(cls, testbed: RunningTestbed, ending: ExitStack) -> Self | None:
        """Return a sampler of all hosts, None where TCP is modelled.

        A kernel that does not answer is detected at the first reading.
        """
        reader = testbed.tcp_state_reader()
        if reader is None:
            return None
        ending.callback(reader.close)
        return cls(reader, testbed.addresses.host_names())

    def read(self) -> Round | None:
        """Query every host. Raise MissingError if the kernel does not report TCP state, OSError for any other fault."""
        return self._reader.read() or None

    def tables(self, readings: Sequence[tuple[int, Round]], dilation: float) -> dict[TrialTable, list[TcpSample]]:
        """Return one row per round and end of a connection."""
        return {
            TCP_TABLE: [
                _tcp_sample(time_ns, state, dilation)
                for time_ns, messages in readings
                for state in tcp_states(messages, self._hosts)
            ]
        }


def _tcp_sample(time_ns: int, state: TcpState, dilation: float) -> TcpSample:
    shortest_ns, delivery_bps = state.shortest_rtt_ns, state.delivery_rate_bps
    undilated = state._replace(
        rtt_ns=undilated_ns(state.rtt_ns, dilation),
        rtt_variation_ns=undilated_ns(state.rtt_variation_ns, dilation),
        shortest_rtt_ns=None if shortest_ns is None else undilated_ns(shortest_ns, dilation),
        delivery_rate_bps=None if delivery_bps is None else round(delivery_bps * dilation),
        window_limited_ns=undilated_ns(state.window_limited_ns, dilation),
        buffer_limited_ns=undilated_ns(state.buffer_limited_ns, dilation),
    )
    return TcpSample(time_ns, *undilated)


SAMPLERS: tuple[type[Sampler[Any]], ...] = (
    RdmaSampler,
    TcpSampler,
    LinkSampler,
    GpuSampler,
    LoadSampler,
)
