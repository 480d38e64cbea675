"""A rank's transport between virtual stages, which may be on any two ranks of a pipeline."""

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.pipeline_shape import VirtualStages
from wanbed.workloads.transport.event import Event, Received, Sent
from wanbed.workloads.transport.links_config import LinksConfig
from wanbed.workloads.transport.receive_buffers import BufferPool
from wanbed.workloads.transport.striped_transport import StripedTransport

_KINDS = (MessageKind.ACTIVATION, MessageKind.GRADIENT)

_UNUSED_BYTES = 1


@dataclass(frozen=True)
class ChunkMessages:
    """The numbers of the messages between the stages of one pipeline, by which a transport knows them.

    Both ends number a message by its kind, its microbatch and the chunk that receives it. A rank names a message by
    its own chunk.
    """

    virtual: VirtualStages
    microbatches: int

    def addressed(self, stage: int, message: Message) -> tuple[int, int]:
        """Return the stage that a message of ``stage`` goes to, and its number. Raise ValueError if there is none."""
        receiver = self.virtual.number(stage, message.chunk) + _step(message.kind)
        if not 0 <= receiver < self.virtual.count:
            raise ValueError(f"there is no stage to send an {message.kind} to")
        to_stage, chunk = self.virtual.place(receiver)
        return to_stage, self._number(replace(message, chunk=chunk))

    def expected(self, stage: int, message: Message) -> tuple[int, int]:
        """Return the stage that a message of ``stage`` comes from, and its number."""
        sender = self.virtual.number(stage, message.chunk) - _step(message.kind)
        return self.virtual.place(sender)[0], self._number(message)

    def _number(self, received: Message) -> int:
        """Return the number of a message, given with the chunk that receives it."""
        part = _KINDS.index(received.kind) * self.virtual.chunks + received.chunk
        return part * self.microbatches + received.microbatch

    def received(self, number: int) -> Message:
        """Return the message of that number, with the chunk that receives it."""
        part, microbatch = divmod(number, self.microbatches)
        kind, chunk = divmod(part, self.virtual.chunks)
        return Message(_KINDS[kind], microbatch, chunk)

    def sent(self, to_stage: int, number: int) -> Message:
        """Return the message of that number to ``to_stage``, with the chunk that sends it."""
        message = self.received(number)
        sender = self.virtual.number(to_stage, message.chunk) - _step(message.kind)
        return replace(message, chunk=self.virtual.place(sender)[1])

    def sizes(self, stage: int, to_stage: int, boundary_bytes: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes of all messages from ``stage`` to ``to_stage``, by their numbers.

        ``boundary_bytes`` has one size for each boundary between virtual stages. A number that no message has gets 1.
        """
        found: list[int] = []
        for kind in _KINDS:
            for chunk in range(self.virtual.chunks):
                receiver = self.virtual.number(to_stage, chunk)
                sender = receiver - _step(kind)
                sends = 0 <= sender < self.virtual.count and self.virtual.stage_of(sender) == stage
                found += [boundary_bytes[min(sender, receiver)] if sends else _UNUSED_BYTES] * self.microbatches
        return tuple(found)


def _step(kind: MessageKind) -> int:
    return 1 if kind is MessageKind.ACTIVATION else -1


class ChunkTransport(StripedTransport):
    """A transport whose messages have chunks: those of this rank, at both ends. Its configuration has exchanges."""

    def __init__(
        self,
        config: LinksConfig,
        messages: ChunkMessages,
        sockets: Mapping[int, Sequence[socket.socket]],
        pool: BufferPool,
        report: Callable[[Event], None],
        *,
        blank: bool = False,
    ) -> None:
        self._numbers = messages
        self._stage = config.stage
        self._first_rank = config.rank - config.stage
        super().__init__(config, sockets, pool, lambda event: report(self._named(event)), blank=blank)

    def send(self, iteration: int, message: Message, payload: memoryview) -> None:
        """Queue an activation for the next virtual stage or a gradient for the previous one, on another rank."""
        to_stage, number = self._numbers.addressed(self._stage, message)
        self.send_message(self._first_rank + to_stage, iteration, number, payload)

    def request(self, iteration: int, message: Message) -> None:
        """Ask the rank with the neighbouring virtual stage for a message that this rank waits for."""
        from_stage, number = self._numbers.expected(self._stage, message)
        self.request_message(self._first_rank + from_stage, iteration, number)

    def _named(self, event: Event) -> Event:
        match event:
            case Sent():
                to_stage = event.peer.rank - self._first_rank
                return replace(event, message=self._numbers.sent(to_stage, event.message.microbatch))
            case Received():
                return replace(event, message=self._numbers.received(event.message.microbatch))
        return event
