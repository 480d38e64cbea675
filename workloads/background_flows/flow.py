"""A flow in the background: what it offers to the network over time, and the configurations of its two processes.

Both engines follow the offered rate.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from wanbed.ground.dataclass_json import write_config
from wanbed.workloads.transport.socket_options import PEER_TIMEOUT_S

TICK_NS = 5_000_000
"""The size of a piece that a flow with a rate hands over at once: the bytes of so much time."""

UNSENT_BYTES = 128 * 1024
"""About what a connection holds that TCP has not sent yet. What a flow with a rate offers beyond that is not sent."""

_BITS_NS = 8 * 10**9


class RateStretch(NamedTuple):
    """From ``start_ns`` on a flow offers ``rate_bps``, headers included; None as much as the network takes.

    ``end_ns`` is None of the last one, which has no end.
    """

    start_ns: int
    end_ns: int | None
    rate_bps: float | None


class Handout(NamedTuple):
    """At ``at_ns`` a flow hands over ``wire_bytes``, headers included; what is not taken by ``until_ns`` is lost.

    ``wire_bytes`` is None for as much as the network takes until then, ``until_ns`` None for ever.
    """

    at_ns: int
    until_ns: int | None
    wire_bytes: int | None


@dataclass(frozen=True)
class OnOffTimes:
    """Times in which a flow sends and is silent, in turns, drawn from ``seed`` if ``exponential``."""

    burst_ns: int
    pause_ns: int
    exponential: bool
    seed: str


@dataclass(frozen=True)
class OfferedRate:
    """The rate of a flow over time, since training began.

    ``steps`` are times and the rates from then on, None for as much as TCP lets it send; before the first there is
    nothing. They begin anew every ``period_ns``, or the last one holds. With ``on_off`` there is one step, which holds
    in the times in which the flow sends. ``dilation`` stretches all times, and divides all rates.
    """

    steps: tuple[tuple[int, int | None], ...]
    period_ns: int | None = None
    on_off: OnOffTimes | None = None
    dilation: float = 1.0

    def dilated(self, factor: float) -> "OfferedRate":
        """Return the same in dilated time."""
        return replace(self, dilation=self.dilation * factor)

    def stretches(self) -> Iterator[RateStretch]:
        """Yield what it offers, in order of time and without gaps; without end if it changes without end."""
        times = self._on_off() if self.on_off is not None else self._stepwise()
        start_ns, rate_bps = next(times)
        for next_ns, next_bps in times:
            yield self._stretch(start_ns, next_ns, rate_bps)
            start_ns, rate_bps = next_ns, next_bps
        yield self._stretch(start_ns, None, rate_bps)

    def handouts(self) -> Iterator[Handout]:
        """Yield what it hands over, in order of time. A flow with a rate does so every ``TICK_NS``, dilated.

        A flow that never offers anything hands over nothing, and ends at once.
        """
        if all(rate_bps == 0 for _, rate_bps in self.steps):
            return
        tick_ns, left = round(TICK_NS * self.dilation), 0.0
        for start_ns, end_ns, rate_bps in self.stretches():
            if rate_bps is None:
                yield Handout(start_ns, end_ns, None)
                continue
            at_ns, handed, whole = start_ns, 0, left
            while rate_bps and (end_ns is None or at_ns < end_ns):
                until_ns = at_ns + tick_ns if end_ns is None else min(at_ns + tick_ns, end_ns)
                # What is less than a byte is due in a later stretch: a slow flow would never send otherwise.
                whole = left + rate_bps * (until_ns - start_ns) / _BITS_NS
                due = int(whole)
                if due > handed:
                    yield Handout(at_ns, until_ns, due - handed)
                at_ns, handed = until_ns, due
            left = whole - handed

    def _stretch(self, start_ns: int, end_ns: int | None, rate_bps: int | None) -> RateStretch:
        slower = None if rate_bps is None else rate_bps / self.dilation
        return RateStretch(
            round(start_ns * self.dilation), None if end_ns is None else round(end_ns * self.dilation), slower
        )

    def _stepwise(self) -> Iterator[tuple[int, int | None]]:
        if self.steps[0][0] > 0:
            yield 0, 0
        yield from self.steps
        begin_ns = self.period_ns
        while begin_ns is not None and self.period_ns is not None:
            if self.steps[0][0] > 0:
                yield begin_ns, 0
            for at_ns, rate_bps in self.steps:
                yield begin_ns + at_ns, rate_bps
            begin_ns += self.period_ns

    def _on_off(self) -> Iterator[tuple[int, int | None]]:
        assert self.on_off is not None
        ((_, rate_bps),) = self.steps
        times = self.on_off
        draw = Random(times.seed)  # noqa: S311 - nothing is kept secret by it
        at_ns = 0
        while True:
            for mean_ns, offered_bps in ((times.burst_ns, rate_bps), (times.pause_ns, 0)):
                yield at_ns, offered_bps
                lasts_ns = round(draw.expovariate(1.0) * mean_ns) if times.exponential else mean_ns
                at_ns += max(lasts_ns, 1)


@dataclass(frozen=True)
class FlowEnd:
    """The part of a flow's configuration that both of its processes have.

    ``window_bytes`` is the window of each connection, ``connections`` how many there are; ``is_tcp`` says whether there
    are any: datagrams go over one socket. ``gate`` is the folder of the gate at which everybody waits for the start.
    A connection whose peer is silent for ``peer_timeout_s`` is lost.
    """

    name: str
    is_tcp: bool
    connections: int
    window_bytes: int
    address: str
    gate: str
    parent_pid: int | None
    peer_timeout_s: int = PEER_TIMEOUT_S


@dataclass(frozen=True)
class SenderConfig:
    """The sending process: it sends to ``peer_address`` and ``peer_port`` what ``offered`` says, in this clock's time.

    Of ``wire_bytes`` bytes on the wire ``payload_bytes`` are payload: those of a full frame.
    """

    end: FlowEnd
    peer_address: str
    peer_port: int
    congestion: str
    offered: OfferedRate
    payload_bytes: int
    wire_bytes: int

    def write(self, path: Path) -> None:
        """Write the configuration as JSON."""
        write_config(self, path)


@dataclass(frozen=True)
class ReceiverConfig:
    """The receiving process: it listens on ``port``, and writes to ``samples`` what had come every ``interval_ns``.

    Times there count from ``epoch_ns`` of this machine's monotonic clock.
    """

    end: FlowEnd
    port: int
    interval_ns: int
    epoch_ns: int
    samples: str

    def write(self, path: Path) -> None:
        """Write the configuration as JSON."""
        write_config(self, path)
