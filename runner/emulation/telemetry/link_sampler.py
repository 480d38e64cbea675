"""Sample the counters of every WAN link and node pair while a trial runs."""

import threading
import time
from collections.abc import Sequence

from results.records.schema import LinkSample
from runner.resolve.dilation import undilated_ns
from testbed.kernel.link_counters import Counters, PortCounters
from testbed.testbed import Testbed

INTERVAL_S = 0.08
"""12.5 samples a second, so that a late reading still leaves 10."""

Reading = tuple[int, list[PortCounters]]


class LinkSampler:
    """Read the counters in a separate thread from ``start`` until ``stop``, and once at each of the two."""

    def __init__(self, testbed: Testbed, epoch_ns: int) -> None:
        self._testbed = testbed
        self._epoch_ns = epoch_ns
        self._readings: list[Reading] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._fault: Exception | None = None

    def start(self) -> None:
        """Take the first reading, and go on taking more."""
        self._read()
        self._thread.start()

    def stop(self) -> list[Reading]:
        """Take the last reading and return all. Raises what a reading raised, SubstrateError above all."""
        self._ending.set()
        self._thread.join()
        if self._fault is not None:
            raise self._fault
        self._read()
        return self._readings

    def _run(self) -> None:
        due_s = time.monotonic()
        while True:
            due_s = max(due_s + INTERVAL_S, time.monotonic())
            if self._ending.wait(due_s - time.monotonic()):
                return
            try:
                self._read()
            except Exception as fault:
                # Nobody looks at this thread: left alone, the run would be kept with its samples cut short.
                self._fault = fault
                return

    def _read(self) -> None:
        before_ns = time.monotonic_ns()
        counters = self._testbed.read_counters()
        # The counters are those of some moment between asking and hearing.
        moment_ns = (before_ns + time.monotonic_ns()) // 2
        self._readings.append((max(0, moment_ns - self._epoch_ns), counters))


def link_samples(readings: Sequence[Reading], dilation: float) -> list[LinkSample]:
    """Return readings as rows, counted from the first one, in the experiment's time.

    Every directed link has rows; a directed node pair only if something crossed it.
    """
    if not readings:
        return []
    samples = []
    first, last = readings[0][1], readings[-1][1]
    for number, (start, end) in enumerate(zip(first, last, strict=True)):
        used = [pair for pair, counters in end.pairs.items() if counters.wire_bytes > start.pairs[pair].wire_bytes]
        for time_ns, ports in readings:
            moment_ns = undilated_ns(time_ns, dilation)
            port = ports[number]
            samples.append(_sample(moment_ns, "link", (port.source, port.destination), port.total, start.total))
            samples += [_sample(moment_ns, "node_pair", pair, port.pairs[pair], start.pairs[pair]) for pair in used]
    return samples


def _sample(moment_ns: int, scope: str, ends: tuple[str, str], now: Counters, start: Counters) -> LinkSample:
    packets = None if now.packets is None or start.packets is None else now.packets - start.packets
    return LinkSample(
        time_ns=moment_ns,
        scope=scope,
        source=ends[0],
        destination=ends[1],
        wire_bytes=now.wire_bytes - start.wire_bytes,
        packets=packets,
        backlog_bytes=now.backlog_bytes,
        drops=now.drops - start.drops,
    )
