"""One rank of a trace: ``python -m wanbed.workloads.trace_replay.trace_rank CONFIG.json`` replays its nodes on one GPU.

Computations occupy an imaginary GPU, and an imaginary CPU, for their durations. Messages and collectives are real bytes
over the transport of training. There is no barrier: the next iteration begins when all nodes of the rank have ended.
The exit status is 0 if all iterations are done; otherwise 1, with one line on stderr.
"""

import sys
import time
from queue import Empty

from wanbed.results.records.span_log import NO_MICROBATCH, Span, between_ranks
from wanbed.workloads.connected_rank import ConnectedRank, end_process, run_connected
from wanbed.workloads.trace_replay.replayed_trace import RankGraph, RankProgress, RingCollective, TraceNode, WorkKind
from wanbed.workloads.trace_replay.trace_rank_config import TraceRankConfig
from wanbed.workloads.transport.event import Event, Received, SegmentsSent, Sent
from wanbed.workloads.transport.ring_sum import RingAllReduce

_PROCESSORS = (WorkKind.GPU, WorkKind.CPU)


class TraceRank:
    """The rank's loop. Construct it when the connections are established and the transport runs.

    The transport must be blank: no payload is read.
    """

    def __init__(self, config: TraceRankConfig, connected: ConnectedRank) -> None:
        self._config = config
        self._connected = connected
        self._ring = RingAllReduce(config.links, connected.transport) if config.links.rings.replicas else None
        self._graph = RankGraph(config.nodes)
        self._progress = RankProgress(self._graph)
        self._sends = {
            (node.peer, node.number): position
            for position, node in enumerate(config.nodes)
            if node.kind is WorkKind.SEND
        }
        self._iteration = 0
        self._early: dict[int, list[tuple[int, int]]] = {}
        self._computing: dict[WorkKind, tuple[int, int]] = {}
        self._joined: tuple[int, int] | None = None
        self._payloads: dict[int, memoryview] = {}

    def run(self) -> None:
        """Replay every iteration, then shut the transport down. Raise TransportError."""
        for iteration in range(self._config.iterations):
            self._iteration = iteration
            self._progress = RankProgress(self._graph)
            for sender, number in self._early.pop(iteration, ()):
                self._progress.arrived(sender, number)
            while not self._progress.complete:
                self._handle_all()
                self._end_computations()
                self._begin_ready()
                if not self._progress.complete:
                    self._wait()
            self._connected.log.flush()
        self._connected.close(self._handle)

    def _begin_ready(self) -> None:
        progress, nodes = self._progress, self._graph.nodes
        while (position := progress.next_of(WorkKind.SEND)) is not None:
            node = nodes[position]
            payload = self._payload(node.size_bytes)
            self._connected.transport.send_message(node.peer, self._iteration, node.number, payload)
        if self._ring is not None and self._joined is None:
            self._begin_collective(self._ring)
        for processor in _PROCESSORS:
            if processor not in self._computing and (position := progress.next_of(processor)) is not None:
                self._computing[processor] = position, time.monotonic_ns()

    def _begin_collective(self, ring: RingAllReduce) -> None:
        """Begin the next collective, if one is ready."""
        if (position := self._progress.next_of(WorkKind.COLLECTIVE)) is not None:
            node = self._graph.nodes[position]
            self._joined = position, time.monotonic_ns()
            number = self._iteration * self._config.collectives + node.number
            collective = RingCollective(node.span, node.size_bytes, ring.replicas)
            ring.begin_blank(number, self._payload(collective.whole_bytes), 1, collective.steps)

    def _end_computations(self) -> None:
        """End the computations whose time has come. A processor that becomes idle begins the next one at once."""
        for processor, (position, start_ns) in list(self._computing.items()):
            node, now_ns = self._graph.nodes[position], time.monotonic_ns()
            if now_ns < start_ns + node.duration_ns:
                continue
            del self._computing[processor]
            if processor is WorkKind.GPU:
                self._connected.record(Span(node.span, self._iteration, node.microbatch, start_ns, now_ns))
            self._progress.ended(position)

    def _wait(self) -> None:
        """Wait for an event, or for the end of a computation, and handle the event."""
        ends = [start_ns + self._graph.nodes[position].duration_ns for position, start_ns in self._computing.values()]
        if not ends:
            self._handle(self._connected.next_event())
            return
        left_ns = min(ends) - time.monotonic_ns()
        if left_ns > 0:
            try:
                self._handle(self._connected.next_event(left_ns / 1e9))
            except Empty:
                return

    def _handle_all(self) -> None:
        while True:
            try:
                event = self._connected.next_event(0)
            except Empty:
                return
            self._handle(event)

    def _handle(self, event: Event) -> None:
        match event:
            case SegmentsSent() if self._joined is not None:
                (position, start_ns), self._joined = self._joined, None
                times_ns, node = (start_ns, time.monotonic_ns()), self._graph.nodes[position]
                self._connected.record(Span(node.span, self._iteration, NO_MICROBATCH, *times_ns, node.size_bytes))
                self._progress.ended(position)
            case Sent():
                position = self._sends[event.peer.rank, event.message.microbatch]
                self._record_transfer("send", event, self._graph.nodes[position])
                self._progress.ended(position)
            case Received():
                message = event.peer.rank, event.message.microbatch
                self._record_transfer("receive", event, self._graph.nodes[self._graph.receives[message]])
                if event.iteration == self._iteration:
                    self._progress.arrived(*message)
                else:
                    self._early.setdefault(event.iteration, []).append(message)

    def _payload(self, size_bytes: int) -> memoryview:
        """Return unwritten memory, the same for every message of that size."""
        if size_bytes not in self._payloads:
            self._payloads[size_bytes] = self._connected.pool.take(size_bytes)
        return self._payloads[size_bytes]

    def _record_transfer(self, kind: str, event: Sent | Received, node: TraceNode) -> None:
        own, other = self._config.rank, event.peer.rank
        ends = (own, other) if kind == "send" else (other, own)
        times_ns, tensor = (event.start_ns, event.end_ns), node.tensor or between_ranks(*ends)
        peer = event.peer.host
        self._connected.record(
            Span(kind, event.iteration, node.microbatch, *times_ns, event.transfer_bytes, peer, tensor)
        )


def main(arguments: list[str]) -> int:
    """Run the rank configured by the file named on the command line. Return the exit status."""
    return run_connected(
        arguments,
        "wanbed.workloads.trace_replay.trace_rank",
        TraceRankConfig,
        lambda config, connected: TraceRank(config, connected).run(),
        name="wanbed trace rank",
        blank=True,
    )


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
