"""Simulate the flows in the background: each hands bytes to a channel of its own, which shares links with training."""

from array import array
from collections.abc import Mapping, Sequence, Sized
from dataclasses import replace
from typing import Final

import numpy as np

from wanbed.flow.channel import Channel
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.ground.errors import SimulationError
from wanbed.results.records.span_columns import Column
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.resolved_variant import BackgroundFlow
from wanbed.runner.simulator.channels.network import Ends, Network
from wanbed.runner.simulator.simulation import FlowTraffic, HostTraffic
from wanbed.testbed.network.goodput import UDP_OVERHEAD_BYTES
from wanbed.workloads.background_flows.flow import UNSENT_BYTES, Handout

_PIECE_NS: Final = 10_000_000
"""The size, in time on its line, of a piece that a flow without a rate hands over. Two pieces wait at most."""
_LEAST_PIECE_BYTES: Final = 32_768
_PIECES: Final = 2
_PATIENCE_NS: Final = 3_600 * 10**9


class SimulatedBackground:
    """The flows of a simulation. Their channels are to be among those of the network: give it ``by_host``.

    ``networks`` has the network of each flow, by the ends of its channel: the one of training, with its own TCP.
    """

    def __init__(self, flows: Sequence[BackgroundFlow], network: Network[PipelineVariant], events: EventQueue) -> None:
        self._events = events
        self._flows = tuple(flows)
        self._running: list[_Flow] = []
        self.networks: Mapping[Ends, Network[PipelineVariant]] = {
            flow.ends: _network_of(flow, network) for flow in flows
        }

    @property
    def by_host(self) -> dict[str, Network[PipelineVariant]]:
        """The network of each flow, by the host that sends."""
        return {ends[0].host.name: network for ends, network in self.networks.items()}

    def begin(self, channels: Mapping[Ends, Channel], rows: Sequence[Sized]) -> None:
        """Let all flows begin. ``rows`` are those of each training, which grow while it goes on."""
        progress = _Progress(rows)
        for flow in self._flows:
            channel, line = channels[flow.ends], self.networks[flow.ends].line(flow.ends)
            running = _Flow(flow, channel, line, self._events, progress)
            running.begin()
            self._running.append(running)

    def flows(self) -> tuple[FlowTraffic, ...]:
        """Return what each flow has sent so far, and what has been received of it."""
        return tuple(running.traffic() for running in self._running)


def _network_of(flow: BackgroundFlow, network: Network[PipelineVariant]) -> Network[PipelineVariant]:
    effects = network.effects
    if not flow.is_tcp:
        effects = replace(effects, window=False, slow_start=False)
    variant = replace(network.variant, spec=network.variant.spec.model_copy(update={"transport": flow.transport}))
    return replace(network, connections={flow.hosts: flow.connections}, variant=variant, effects=effects)


class _Progress:
    """Notices that training does not go on, which an event queue that flows keep filling does not tell."""

    def __init__(self, rows: Sequence[Sized]) -> None:
        self._rows = rows
        self._count = -1
        self._since_ns = 0

    def check(self, now_ns: int) -> None:
        """Raise SimulationError if nothing has ended in training for an hour."""
        count = sum(map(len, self._rows))
        if count != self._count:
            self._count, self._since_ns = count, now_ns
        elif now_ns - self._since_ns > _PATIENCE_NS:
            raise SimulationError(
                "beside its background nothing has ended in training for an hour of simulated time: the schedule may "
                "be deadlocked, which it says without background; else give shorter computations"
            )


class _Flow:
    """One flow while it runs."""

    def __init__(
        self, flow: BackgroundFlow, channel: Channel, line: Line, events: EventQueue, progress: _Progress
    ) -> None:
        self._flow = flow
        self._channel = channel
        self._line = line
        self._events = events
        self._progress = progress
        self._handouts = flow.offered.handouts()
        piece_bytes = (line.rate_bps or 0) * _PIECE_NS // (8 * 10**9)
        self._piece_bytes = max(piece_bytes, _LEAST_PIECE_BYTES)
        self._waiting_bytes = self._pieces = 0
        self._greedy_until_ns: int | None = 0
        self._handed_wire = self._handed = 0
        self._sent = 0
        self._points = array("q", (0, 0, 0))
        """Three numbers at each end of a stretch: the bytes before, when they had left, and when they had arrived."""

    def begin(self) -> None:
        """Hand over what is due, from now on."""
        self._await_next()

    def traffic(self) -> FlowTraffic:
        """Return what it has sent so far, and what has been received."""
        sizes, left_ns, arrived_ns = np.frombuffer(self._points, np.int64).reshape(-1, 3).T
        wire: Column = self._line.wire_bytes(sizes)
        datagram_bytes = self._line.mtu_bytes - UDP_OVERHEAD_BYTES
        payload = sizes if self._flow.is_tcp else wire * datagram_bytes // self._line.frame_bytes
        return FlowTraffic(
            self._flow.name,
            HostTraffic(*self._flow.hosts, left_ns, wire),
            HostTraffic(*self._flow.hosts, arrived_ns, payload),
        )

    def _await_next(self) -> None:
        handout = next(self._handouts, None)
        if handout is not None:
            self._events.at(max(handout.at_ns, self._events.now_ns), self._hand_over, handout)

    def _hand_over(self, now_ns: int, handout: Handout) -> None:
        self._progress.check(now_ns)
        if handout.wire_bytes is None:
            self._greedy_until_ns = handout.until_ns
            self._fill(now_ns)
        else:
            self._greedy_until_ns = 0
            size_bytes = self._payload(handout.wire_bytes)
            room_bytes = UNSENT_BYTES * self._flow.connections + size_bytes - self._waiting_bytes
            self._queue(now_ns, min(size_bytes, room_bytes))
        self._await_next()

    def _payload(self, wire_bytes: int) -> int:
        """Return the payload of that much on the wire. What rounding leaves comes next time."""
        self._handed_wire += wire_bytes
        line = self._line
        due = self._handed_wire * line.payload_bytes // line.frame_bytes if line.headers else self._handed_wire
        size_bytes, self._handed = due - self._handed, due
        return size_bytes

    def _fill(self, now_ns: int) -> None:
        """Hand over pieces while the flow takes all it gets."""
        until_ns = self._greedy_until_ns
        while self._pieces < _PIECES and (until_ns is None or now_ns < until_ns):
            self._queue(now_ns, self._piece_bytes)

    def _queue(self, now_ns: int, size_bytes: int) -> None:
        if size_bytes <= 0:
            return
        self._waiting_bytes += size_bytes
        self._pieces += 1

        def left(start_ns: int, end_ns: int) -> None:
            self._events.at(max(end_ns, self._events.now_ns), self._have_left, (start_ns, end_ns, size_bytes))

        self._channel.queue(now_ns, size_bytes, left, at_once=False)

    def _have_left(self, now_ns: int, what: tuple[int, int, int]) -> None:
        start_ns, end_ns, size_bytes = what
        self._progress.check(now_ns)
        self._waiting_bytes -= size_bytes
        self._pieces -= 1
        arrival_ns = self._channel.arrival_ns
        if start_ns > self._points[-2]:
            self._points.extend((self._sent, start_ns, max(arrival_ns(start_ns), self._points[-1])))
        self._sent += size_bytes
        self._points.extend((self._sent, max(end_ns, self._points[-2]), max(arrival_ns(end_ns), self._points[-1])))
        self._fill(now_ns)
