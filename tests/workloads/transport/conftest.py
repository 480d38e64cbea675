"""Transports in this process: two joined over loopback, or whole pipelines joined by socket pairs."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Self

import pytest

from wanbed.workloads.transport.event import Event
from wanbed.workloads.transport.links_config import (
    BoundariesConfig,
    BoundaryConfig,
    LinksConfig,
    RingConfig,
    RingsConfig,
)
from wanbed.workloads.transport.peer import Peer
from wanbed.workloads.transport.receive_buffers import BufferPool
from wanbed.workloads.transport.rendezvous import Identity, Rendezvous
from wanbed.workloads.transport.socket_options import make_socket
from wanbed.workloads.transport.striped_transport import StripedTransport

LOOPBACK = "127.0.0.1"
TOKEN = bytes(range(16))
TIMEOUT_NS = 8_000_000_000
SEGMENT_BYTES = 1448


class End:
    """One rank's transport, running."""

    def __init__(self, plan: LinksConfig, sockets: dict[int, list[socket.socket]], *, blank: bool = False) -> None:
        self.plan = plan
        self.pool = BufferPool()
        self.events: SimpleQueue[Event] = SimpleQueue()
        self.sockets = [made for each in sockets.values() for made in each]
        self.transport = StripedTransport(plan, sockets, self.pool, self.events.put, blank=blank)
        self.transport.start()


def two_stages(
    port: int, connections: int, transfer_bytes: int, unread_bytes: int = 1, *, keep_warm: bool = False
) -> list[LinksConfig]:
    """Rank 0 calls and sends activations, rank 1 listens and sends gradients."""
    upper = Peer(1, "west-0", LOOPBACK, port, connections, unread_bytes=unread_bytes, keep_warm=keep_warm)
    lower = Peer(0, "east-0", LOOPBACK, None, connections, unread_bytes=unread_bytes, keep_warm=keep_warm)
    return [
        LinksConfig(
            0,
            0,
            0,
            (upper,),
            iterations=2,
            boundaries=BoundariesConfig(following=BoundaryConfig(1, transfer_bytes), microbatches=8),
        ),
        LinksConfig(
            1,
            0,
            1,
            (lower,),
            iterations=2,
            boundaries=BoundariesConfig(BoundaryConfig(0, transfer_bytes), microbatches=8),
        ),
    ]


def rendezvous(plans: list[LinksConfig], port: int) -> list[dict[int, list[socket.socket]]]:
    """The connected sockets of both ranks."""
    identities = [Identity(TOKEN, plan.rank, LOOPBACK, port if plan.rank else 0) for plan in plans]
    calling, listening = (
        Rendezvous(identity, plan.peers, pytest.fail) for identity, plan in zip(identities, plans, strict=True)
    )
    met: dict[int, list[socket.socket]] = {}
    thread = threading.Thread(target=lambda: met.update(listening.rendezvous(TIMEOUT_NS)))
    thread.start()
    called = calling.rendezvous(TIMEOUT_NS)
    thread.join()
    return [called, met]


@pytest.fixture
def join(free_port: int) -> Iterator[Callable[..., tuple[End, End]]]:
    ends: list[End] = []

    def join_two(
        connections: int, transfer_bytes: int, *, unread_bytes: int = 1, blank: bool = False
    ) -> tuple[End, End]:
        plans = two_stages(free_port, connections, transfer_bytes, unread_bytes)
        ends.extend(End(*each, blank=blank) for each in zip(plans, rendezvous(plans, free_port), strict=True))
        return ends[0], ends[1]

    yield join_two
    hang_up([made for end in ends for made in end.sockets])


@pytest.fixture
def join_by_hand(free_port: int) -> Iterator[Callable[..., tuple[list[socket.socket], End]]]:
    """Rank 1's transport, and the bare sockets that lead to it, on which a test plays rank 0."""
    used: list[socket.socket] = []

    def join_bare(
        connections: int,
        transfer_bytes: int,
        *,
        unread_bytes: int = 1,
        blank: bool = False,
        keep_warm: bool = False,
    ) -> tuple[list[socket.socket], End]:
        plans = two_stages(free_port, connections, transfer_bytes, unread_bytes, keep_warm=keep_warm)
        called, met = rendezvous(plans, free_port)
        used.extend(called[1] + met[0])
        return called[1], End(plans[1], met, blank=blank)

    yield join_bare
    hang_up(used)


class Mesh:
    """P pipelines of S stages in cells of C, and a ring over all replicas of each stage, joined by socket pairs.

    With ``window_bytes`` they are joined by TCP over loopback, in segments of an Ethernet's size and such windows.

    With D ``datacenters`` of as many replicas there are rings inside each of them and rings of counterparts. In a
    ``butterfly`` there is one for each two replicas. ``chained`` replicas reduce and broadcast along their ring,
    ``announced`` ones sum as Gloo does.

    Rank ``pipeline x S + stage``. ``by_hand`` are ranks that a test plays: their sockets are in ``bare``, by rank and
    then by peer. C = 0 shares nothing. ``turns`` are those of every boundary and direction, in terms of the first cell.
    """

    def __init__(
        self,
        pipelines: int,
        stages: int,
        cell: int,
        transfer_bytes: int,
        *,
        turns: Sequence[tuple[int, int]] = (),
        datacenters: int = 1,
        butterfly: bool = False,
        chained: bool = False,
        announced: bool = False,
        microbatches: int = 1,
        iterations: int = 1,
        connections: int = 2,
        piece_bytes: int | None = None,
        by_hand: Sequence[int] = (),
        blank: bool = False,
        window_bytes: int | None = None,
    ) -> None:
        self.stages = stages
        self._window_bytes = window_bytes
        ranks = range(pipelines * stages)
        self.ends: dict[int, End] = {}
        self.bare: dict[int, dict[int, list[socket.socket]]] = {rank: {} for rank in ranks}
        self._pairs: dict[int, dict[int, list[socket.socket]]] = {rank: {} for rank in ranks}
        self._connections = connections
        plans = []
        for rank in ranks:
            pipeline, stage = divmod(rank, stages)
            first = pipeline - pipeline % cell if cell else pipeline
            mates = tuple((first + index) * stages + stage for index in range(cell))
            shifted = tuple((first + each, microbatch) for each, microbatch in turns)
            previous, following = (
                BoundaryConfig(rank + by, transfer_bytes, mates, shifted) if 0 <= stage + by < stages else None
                for by in (-1, 1)
            )
            seats, replicas = pipelines // datacenters, tuple(range(stage, pipelines * stages, stages))
            home, seat = divmod(pipeline, seats)
            nested = replicas[home * seats : (home + 1) * seats], replicas[seat::seats]
            if butterfly:
                nested = tuple(tuple(sorted((rank, other))) for other in replicas if other != rank)
            rings = tuple(RingConfig(ranks, connections, piece_bytes) for ranks in nested if len(ranks) > 1)
            around = {each for ring in rings for each in ring.neighbours(rank)}
            near = {each.rank for each in (previous, following) if each is not None}
            peers = sorted((set(mates) if previous or following else set()) | near | around - {rank})
            neighbours = tuple(Peer(to, f"host-{to}", LOOPBACK, 1000, connections) for to in peers if to != rank)
            plans.append(
                LinksConfig(
                    rank,
                    pipeline,
                    stage,
                    neighbours,
                    iterations,
                    BoundariesConfig(previous, following, microbatches),
                    rings=RingsConfig(rings, butterfly=butterfly, chained=chained, announced=announced),
                    window_bytes=window_bytes,
                )
            )
        for plan in plans:
            for peer in plan.peers:
                if peer.rank > plan.rank:
                    self._join(plan.rank, peer.rank)
        for plan in plans:
            if plan.rank in by_hand:
                self.bare[plan.rank] = self._pairs[plan.rank]
            else:
                self.ends[plan.rank] = End(plan, self._pairs[plan.rank], blank=blank)

    def _join(self, one: int, other: int) -> None:
        for _ in range(self._connections):
            ours, theirs = socket.socketpair() if self._window_bytes is None else tcp_pair(self._window_bytes)
            ours.setblocking(False)
            theirs.setblocking(False)
            self._pairs[one].setdefault(other, []).append(ours)
            self._pairs[other].setdefault(one, []).append(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        hang_up([each for by_peer in self._pairs.values() for sockets in by_peer.values() for each in sockets])
        for made in (made for by_peer in self.bare.values() for sockets in by_peer.values() for made in sockets):
            made.close()


def tcp_pair(window_bytes: int) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection over loopback."""
    with make_socket(LOOPBACK, 0, window_bytes) as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        listening.listen()
        calling = make_socket(LOOPBACK, 0, window_bytes)
        calling.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        calling.setblocking(True)
        calling.connect(listening.getsockname())
        listening.setblocking(True)
        accepted, _ = listening.accept()
    return calling, accepted


@pytest.fixture(scope="session")
def mesh() -> type[Mesh]:
    return Mesh


def hang_up(sockets: list[socket.socket]) -> None:
    """Let whatever transport still runs see its connections end."""
    for made in sockets:
        with suppress(OSError):
            made.shutdown(socket.SHUT_RDWR)
