"""Sample the counters of every WAN link and node pair while a trial runs."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Self

from wanbed.results.records.schema import LinkSample
from wanbed.results.records.trial_tables import LINK_TABLE, TrialTable
from wanbed.runner.companions.telemetry.on_hosts.sampling import Sampler
from wanbed.testbed.kernel.link_counters import Counters, PortCounters
from wanbed.testbed.running_testbed import RunningTestbed

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
            samples.append(_sample(time_ns, "link", (port.source, port.destination), port.total, start.total))
            samples += [_sample(time_ns, "node_pair", pair, port.pairs[pair], start.pairs[pair]) for pair in used]
    return samples


def _sample(time_ns: int, scope: str, ends: tuple[str, str], now: Counters, start: Counters) -> LinkSample:
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
