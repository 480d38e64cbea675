"""Simulate a channel packet by packet.

Its chunks go over whichever of its connections has room first. Channels share the ways of their hosts.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable
from typing import Final

from wanbed.flow.channel import Channel, Known, Transfer
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.flow.packets.congestion_control import Bbr, Cubic
from wanbed.flow.packets.packet import ACKNOWLEDGEMENT_BYTES
from wanbed.flow.packets.packet import HEADER_BYTES as PACKET_HEADER_BYTES
from wanbed.flow.packets.receiver import Receiver
from wanbed.flow.packets.sender import TcpSender
from wanbed.flow.packets.tick import MET_AT_ONCE, Ticks
from wanbed.flow.packets.way import Gateways, Way
from wanbed.testbed.network.shared_rate import most_frames
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.workloads.transport.chunk_queues import ChunkQueue, QueuedChunk
from wanbed.workloads.transport.frame import HEADER_BYTES, HELLO_BYTES
from wanbed.workloads.transport.link import FRAMES_ALONE

_HELLO_BYTES: Final[int] = HELLO_BYTES + PACKET_HEADER_BYTES
"""The wire bytes of the first packet with data, by which an end measures its first round trip."""

GREETING_BYTES: Final[int] = _HELLO_BYTES + ACKNOWLEDGEMENT_BYTES
"""The wire bytes that an end sends when it greets the other: it acknowledges the connection or its greeting first."""

_CALL_BYTES: Final[int] = ACKNOWLEDGEMENT_BYTES + 8
"""The wire bytes of the packet that asks for a connection, and of its answer: they have options of their own."""

ChunkArrived = Callable[[int, int, QueuedChunk], None]
"""Called when a chunk is there, with the times at which its first byte was handed to the kernel and its last came."""


class _Request(Transfer):
    """A request over a channel. ``known`` is called with the time at which it arrives."""

    __slots__ = ("_channel", "_known")

    def __init__(self, channel: Channel, now_ns: int, size_bytes: int, known: Known) -> None:
        super().__init__(now_ns, size_bytes)
        self._channel = channel
        self._known = known

    def left(self, first_ns: int, last_ns: int) -> None:
        """Report when it arrives."""
        self._known(self._channel.arrival_ns(last_ns))


class _Sent:
    """One or several chunks that connections carry."""

    __slots__ = ()

    def accept(self, now_ns: int) -> None:
        """Handle that the kernel has accepted one chunk."""

    def arrive(self, at_ns: int, latency_ns: int) -> None:
        """Handle that one chunk is there; the line has that latency."""


class _Chunks(_Sent):
    """The chunks of a queued transfer, and what has become of them."""

    __slots__ = (
        "available_ns",
        "chunks",
        "first_ns",
        "last_ns",
        "size_bytes",
        "told",
        "unaccepted",
        "unbegun",
        "whole",
    )

    def __init__(self, transfer: Transfer, chunks: int) -> None:
        self.available_ns, self.size_bytes = transfer.available_ns, transfer.size_bytes
        self.told = transfer
        self.chunks = self.unbegun = self.unaccepted = self.whole = chunks
        self.first_ns = self.last_ns = -1

    def begin(self, now_ns: int) -> int:
        """Begin the next chunk, and return its size."""
        number = self.chunks - self.unbegun
        self.unbegun -= 1
        if self.first_ns < 0:
            self.first_ns = now_ns
        return self.size_bytes * (number + 1) // self.chunks - self.size_bytes * number // self.chunks

    def accept(self, now_ns: int) -> None:
        self.unaccepted -= 1
        if not self.unaccepted and self.told.is_watched:
            self.told.accepted(now_ns)

    def arrive(self, at_ns: int, latency_ns: int) -> None:
        self.whole -= 1
        self.last_ns = max(self.last_ns, at_ns)
        if not self.whole:
            left_ns = self.last_ns - latency_ns
            self.told.left(min(self.first_ns, left_ns), left_ns)


class _Chunk(_Sent):
    """A chunk of a queue that the channel serves."""

    __slots__ = ("arrived", "begun_ns", "queued")

    def __init__(self, queued: QueuedChunk, arrived: ChunkArrived, begun_ns: int) -> None:
        self.queued, self.arrived, self.begun_ns = queued, arrived, begun_ns

    def accept(self, now_ns: int) -> None:
        self.queued.source.accepted()

    def arrive(self, at_ns: int, latency_ns: int) -> None:
        self.arrived(self.begun_ns, at_ns, self.queued)


class _Served:
    """A queue that the channel serves. The one of the lowest ``precedence`` goes first."""

    __slots__ = ("arrived", "precedence", "queue")

    def __init__(self, precedence: int, queue: ChunkQueue, arrived: ChunkArrived) -> None:
        self.precedence, self.queue, self.arrived = precedence, queue, arrived


def _precedence(served: _Served) -> int:
    return served.precedence


class PacketChannel(Channel):
    """A ``Channel`` over connections that are followed packet by packet.

    As in the transport, a connection begins a chunk when the socket has room, the longest unused connection first; one
    without another beside it begins a few. Requests go first, then the chunks of the queues that are served, then
    transfers. A transfer is there when each of its chunks is there, in the order of its connection.
    """

    def __init__(self, events: EventQueue, line: Line) -> None:
        super().__init__(line)
        self._events = events
        self._senders: list[TcpSender] = []
        self._watched: set[TcpSender] = set()
        self._ends: dict[TcpSender, deque[tuple[int, _Sent]]] = {}
        self._unaccepted: dict[TcpSender, deque[tuple[int, _Sent]]] = {}
        self._requests: deque[_Chunks] = deque()
        self._served: list[_Served] = []
        self._waiting: deque[_Chunks] = deque()
        self._begun = 0
        self._is_offering = False
        self._is_dealing = False

    def add(self, sender: TcpSender) -> None:
        """Add a connection."""
        self._senders.append(sender)
        self._ends[sender] = deque()
        self._unaccepted[sender] = deque()

    def join(self, other: "PacketChannel") -> None:
        """Let another channel have the other direction of its connections, as sockets have."""
        for sender, opposite in zip(self._senders, other._senders, strict=True):
            for one, two in ((sender, opposite), (opposite, sender)):
                one.answer(two.receiver)
                two.receiver.answer(one.acknowledged)

    @property
    def releases_when_accepted(self) -> bool:
        """Return what ``Channel.releases_when_accepted`` describes: it has the kernel's buffers."""
        return True

    def send(self, transfer: Transfer) -> None:
        """Queue a transfer as ``Channel.send`` says. It is told that it has left when its last missing segment is sent.

        Jitter apart: what has left arrives a latency later.
        """
        striping, size_bytes = transfer.striping, transfer.size_bytes
        queued = _Chunks(transfer, 1 if striping is None else max(min(striping.chunks, size_bytes), 1))
        self._waiting.append(queued)
        self._events.at(max(queued.available_ns, self._events.now_ns), self._available, queued)

    def serve(self, queue: ChunkQueue, precedence: int, arrived: ChunkArrived) -> None:
        """Send the chunks of ``queue`` from now on, before transfers, and before queues of a higher ``precedence``.

        Call ``touch`` whenever chunks have become ready. ``arrived`` is called for each chunk that is there.
        """
        insort(self._served, _Served(precedence, queue, arrived), key=_precedence)

    def touch(self, now_ns: int) -> None:
        """Handle that chunks of a queue may have become ready."""
        if not self._is_offering:
            self._offer(now_ns)

    def request(self, now_ns: int, size_bytes: int, known: Known) -> None:
        """Send a request as ``Channel.request`` says, on the connection that is writable first."""
        queued = _Chunks(_Request(self, now_ns, size_bytes, known), 1)
        self._requests.appendleft(queued)
        self._events.at(max(now_ns, self._events.now_ns), self._available, queued)

    def _available(self, now_ns: int, transfer: _Chunks) -> None:
        if not transfer.size_bytes:
            self._waiting.remove(transfer)
            transfer.told.left(now_ns, now_ns)
            if transfer.told.is_watched:
                transfer.told.accepted(now_ns)
            return
        self._offer(now_ns)

    def _offer(self, now_ns: int) -> None:
        self._is_offering = True
        if self._has_chunk(now_ns):
            # Connections that wait to be writable are not asked.
            for sender in sorted([each for each in self._senders if each not in self._watched], key=_last_begun):
                self._write(sender, now_ns)
            self._deal(now_ns)
        self._is_offering = False

    def _write(self, sender: TcpSender, now_ns: int) -> None:
        """Let a connection begin a chunk, or a few if there is no other connection."""
        for _ in range(FRAMES_ALONE if len(self._senders) == 1 else 1):
            if self._has_chunk(now_ns) and sender.takes_more and not self._unaccepted[sender]:
                self._begin_chunk(sender, now_ns)

    def progressed(self, sender: TcpSender, now_ns: int) -> None:
        """Handle that a connection may have sent more: the kernel accepts more, and whoever writes may go on."""
        self._accept(sender, now_ns)
        if not self._is_dealing and sender.has_room and (self._waiting or self._requests or self._is_ready):
            self._is_dealing = True
            self._events.at(now_ns, self._deal_again, None)

    def _accept(self, sender: TcpSender, now_ns: int) -> None:
        unaccepted = self._unaccepted[sender]
        while unaccepted and unaccepted[0][0] <= sender.accepted:
            _, sent = unaccepted.popleft()
            sent.accept(now_ns)

    def _deal_again(self, now_ns: int, _: None) -> None:
        self._is_dealing = False
        self._deal(now_ns)

    def _has_chunk(self, now_ns: int) -> bool:
        for transfers in (self._requests, self._waiting):
            if transfers and transfers[0].available_ns <= now_ns:
                return True
        return self._is_ready

    @property
    def _is_ready(self) -> bool:
        return any(served.queue.ready for served in self._served)

    def _deal(self, now_ns: int) -> None:
        """Let writable connections begin chunks, one each in its turn, while there are chunks."""
        begun = True
        while begun:
            begun = False
            for sender in sorted(self._senders, key=_last_begun):
                if self._has_chunk(now_ns) and sender.has_room and not self._unaccepted[sender]:
                    self._write(sender, now_ns)
                    begun = True
        if self._has_chunk(now_ns):
            self._watched.update(self._senders)
        else:
            self._watched = {sender for sender in self._senders if self._unaccepted[sender]}

    def _begin_chunk(self, sender: TcpSender, now_ns: int) -> None:
        size_bytes, sent, is_chunk = self._next_chunk(now_ns)
        if is_chunk:
            self._begun += 1
            sender.last_begun = self._begun
        self._ends[sender].append((sender.written + size_bytes, sent))
        self._unaccepted[sender].append((sender.written + size_bytes, sent))
        sender.write(size_bytes, now_ns, HEADER_BYTES)
        self._accept(sender, now_ns)

    def _next_chunk(self, now_ns: int) -> tuple[int, _Sent, bool]:
        """Return the next chunk's size, what it belongs to, and False for a request: it uses no connection up."""
        transfers = self._requests
        is_chunk = not transfers or transfers[0].available_ns > now_ns
        if is_chunk:
            for served in self._served:
                if served.queue.ready:
                    queued = served.queue.head
                    queued.source.begun()
                    served.queue.pop()
                    return queued.header.length + HEADER_BYTES, _Chunk(queued, served.arrived, now_ns), True
            transfers = self._waiting
        transfer = transfers[0]
        size_bytes = transfer.begin(now_ns)
        if not transfer.unbegun:
            transfers.popleft()
        return size_bytes, transfer, is_chunk

    def carried(self, from_ns: int, until_ns: int, size_bytes: int) -> None:
        """Record when the line carries bytes."""
        history, latency_ns = self.history, self.line.latency_ns
        from_ns, until_ns = from_ns - latency_ns, until_ns - latency_ns
        if history and history[-2] >= from_ns:
            history[-2] = max(until_ns, history[-2])
            history[-1] += size_bytes
        else:
            history.extend((max(from_ns, 0), until_ns, size_bytes))

    def arrived(self, sender: TcpSender, at_ns: int, next_byte: int) -> None:
        """Handle that a connection's bytes before ``next_byte`` are all there at ``at_ns``."""
        ends = self._ends[sender]
        while ends and ends[0][0] <= next_byte:
            _, sent = ends.popleft()
            sent.arrive(at_ns, self.line.latency_ns)


def _last_begun(sender: TcpSender) -> int:
    return sender.last_begun


def first_rtt_ns(line: Line, forth: Way, back: Way) -> int:
    """Return how long a connection takes to be made, or a greeting to be acknowledged, if they wait for no others."""
    return line.rtt_ns + forth.serialising_ns(_HELLO_BYTES) + back.serialising_ns(ACKNOWLEDGEMENT_BYTES)


def greeting_rtts_ns(rtt_ns: int, asked_way: Way, before: int, *, calls: bool) -> tuple[int, int]:
    """Return how long a connection takes to be made and a greeting to be acknowledged, at an end that ``calls`` or not.

    ``before`` others are asked for at the same time over ``asked_way``, each taking ``rtt_ns`` by itself. They are
    asked for one after the other. Each is greeted as soon as it is made, which takes the line longer. The end that is
    called sends its greetings no faster than they come.
    """
    asking_ns = asked_way.carrying_ns(_CALL_BYTES)
    behind_ns = asked_way.carrying_ns(GREETING_BYTES) - asking_ns
    if calls:
        return rtt_ns + before * asking_ns, rtt_ns + before * behind_ns
    return rtt_ns + before * behind_ns, rtt_ns


class PacketLinks:
    """The connections of all channels over the same gateways. ``seed`` determines the probes of BBR."""

    def __init__(self, gateways: Gateways, events: EventQueue, seed: str, ticks: Ticks = MET_AT_ONCE) -> None:
        self._gateways, self._events, self._seed, self._ticks = gateways, events, seed, ticks

    def channel(
        self,
        line: Line,
        hosts: tuple[str, str],
        connections: int,
        tcp: TcpSettings,
        *,
        unsent_bytes: int,
        calls: bool = True,
        called_before: int = 0,
        greeted_ns: int = 0,
    ) -> PacketChannel:
        """Return a channel from one host to another over newly opened connections.

        Each of them may hold ``unsent_bytes``. ``calls`` is whether the sending end has made the connections, and
        ``called_before`` how many others were made at the same time over the same way before them. Its greeting is in
        flight until ``greeted_ns``.
        """
        channel = PacketChannel(self._events, line)
        source, destination = hosts
        forth, back = self._gateways.way(source, destination), self._gateways.way(destination, source)
        rtt_ns = first_rtt_ns(line, forth, back)
        asked_way = forth if calls else back
        for number in range(connections):
            rtts_ns = greeting_rtts_ns(rtt_ns, asked_way, called_before + number, calls=calls)
            seed = f"{self._seed} {source} {destination} {number}"
            sender = TcpSender(
                self._events,
                channel,
                _congestion_control(tcp.congestion, rtts_ns[1], seed, self._ticks),
                forth,
                unsent_bytes=unsent_bytes,
                restarts=tcp.restarts_after_idle,
                most_segments=self._gateways.super_packet_frames(source) or most_frames(line.frame_bytes),
                rtts_ns=rtts_ns,
                greeted_ns=greeted_ns,
                segment_bytes=line.payload_bytes,
                ticks=self._ticks,
            )
            receiver = Receiver(
                self._events,
                back,
                sender.acknowledged,
                _arrival(channel, sender),
                window_bytes=tcp.window_bytes,
                has_answered=calls,
                segment_bytes=line.payload_bytes,
                ticks=self._ticks,
            )
            sender.connect(receiver)
            channel.add(sender)
        return channel


def _congestion_control(name: str, rtt_ns: int, seed: str, ticks: Ticks) -> Bbr | Cubic:
    return Bbr(rtt_ns, seed) if name == "bbr" else Cubic(rtt_ns, is_reno=name == "reno", ticks=ticks)


def _arrival(channel: PacketChannel, sender: TcpSender) -> Callable[[int, int], None]:
    def arrived(at_ns: int, next_byte: int) -> None:
        channel.arrived(sender, at_ns, next_byte)

    return arrived
