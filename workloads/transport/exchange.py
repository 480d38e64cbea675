"""All messages between this rank and one peer, each with a size of its own. A trace sends between any two ranks."""

from collections.abc import Callable, Mapping
from functools import partial

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.transport.boundary import Offering
from wanbed.workloads.transport.chunk_queues import ChunkQueue, QueuedChunk
from wanbed.workloads.transport.event import Event
from wanbed.workloads.transport.frame import Cutting, FrameError, FrameHeader, FrameKind, request
from wanbed.workloads.transport.link import Arrival, Link
from wanbed.workloads.transport.links_config import ExchangeConfig, LinksConfig
from wanbed.workloads.transport.peer import Peer
from wanbed.workloads.transport.receive_buffers import Assembly, BufferPool
from wanbed.workloads.transport.requests import Requests


class Exchange:
    """The messages to and from ``peer``. They travel as activations whose microbatch is the message's number.

    Only ``check`` may be called outside of the I/O thread.
    """

    def __init__(
        self,
        links_config: LinksConfig,
        config: ExchangeConfig,
        peer: Peer,
        *,
        pool: BufferPool,
        report: Callable[[Event], None],
    ) -> None:
        self.peer = peer
        self.queue = ChunkQueue()
        self._config, self._links_config = config, links_config
        self._report = report
        sizes = {*config.outgoing_bytes, *config.incoming_bytes}
        self._cuttings = {size_bytes: Cutting(size_bytes, 1, config.connections) for size_bytes in sizes}
        self._assemblies = {
            size_bytes: Assembly(peer, MessageKind.ACTIVATION, self._cuttings[size_bytes], pool, report)
            for size_bytes in set(config.incoming_bytes)
        }
        self._requests = Requests() if links_config.on_request else None
        self._links: Mapping[int, Link] = {}

    def use_links(self, links: Mapping[int, Link]) -> None:
        """Set the links, by rank."""
        self._links = links

    def check(self, iteration: int, number: int, payload: memoryview) -> None:
        """Raise ValueError if there is no such message, or it has another size."""
        sizes = self._config.outgoing_bytes
        if not (0 <= number < len(sizes) and 0 <= iteration < self._links_config.iterations):
            raise ValueError(f"there is no message {number} to {self.peer} in iteration {iteration}")
        if payload.nbytes != sizes[number]:
            raise ValueError(f"{self.peer} expects {sizes[number]} bytes, not {payload.nbytes}")

    def offer(self, iteration: int, number: int, payload: memoryview) -> None:
        """Send a message, once it is asked for where the configuration says so."""
        if self._requests is None:
            self._send(iteration, number, payload)
        else:
            self._requests.made((iteration, number), partial(self._send, iteration, number, payload))

    def request(self, iteration: int, number: int) -> None:
        """Ask the peer for a message."""
        own = self._links_config.pipeline
        self._links[self.peer.rank].request(request(FrameKind.ACTIVATION, own, iteration, number))

    def asked(self, header: FrameHeader) -> None:
        """Handle the peer's request for a message. Raise FrameError if that is not expected."""
        what = f"message {header.number} of iteration {header.iteration}"
        if self._requests is None or header.owner != self._links_config.pipeline:
            raise FrameError(f"it asks for {what}, and nothing waits for that")
        if header.number >= len(self._config.outgoing_bytes) or header.iteration >= self._links_config.iterations:
            raise FrameError(f"it asks for {what}, which does not exist")
        if not self._requests.asked((header.iteration, header.number)):
            raise FrameError(f"it asks for {what} twice")

    def _send(self, iteration: int, number: int, payload: memoryview) -> None:
        size_bytes, pipeline = payload.nbytes, self._links_config.pipeline
        cutting, message = self._cuttings[size_bytes], Message(MessageKind.ACTIVATION, number)
        offering = Offering(self.peer, iteration, message, size_bytes, cutting.chunks, self._report)
        for index in range(cutting.chunks):
            offset, length = cutting.chunk(index)
            header = FrameHeader(FrameKind.ACTIVATION, pipeline, iteration, number, size_bytes, offset, length)
            self.queue.add(QueuedChunk(header, payload[offset : offset + length], offering))
        self._links[self.peer.rank].touch()

    def place(self, header: FrameHeader) -> Arrival:
        """Return the arrival for a chunk from the peer. Raise FrameError if the chunk is not expected."""
        sizes = self._config.incoming_bytes
        what = f"chunk at {header.offset} of message {header.number}"
        if header.kind is not FrameKind.ACTIVATION or header.owner != self._links_config.pipeline:
            raise FrameError(f"it sent the {what} as {header.kind.name.lower()} of pipeline {header.owner}")
        if header.number >= len(sizes) or header.iteration >= self._links_config.iterations:
            raise FrameError(f"it sent the {what} in iteration {header.iteration}, which does not exist")
        size_bytes = sizes[header.number]
        index = self._cuttings[size_bytes].index(header.offset, header.length)
        if header.total_bytes != size_bytes or index is None:
            raise FrameError(
                f"it sent the {what}, {header.length} of {header.total_bytes} bytes: expected are {size_bytes}, and "
                "it is not cut there"
            )
        return self._assemblies[size_bytes].place(header, index)
