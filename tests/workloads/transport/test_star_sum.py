"""Replicas that sum over a star: all of them, a quorum of them, and those that are left."""

import socket
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from threading import Event as Flag
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.until import until_within
from tests.workloads.transport.conftest import LOOPBACK, hang_up
from wanbed.workloads.transport.event import (
    Closed,
    Event,
    Failed,
    Gathered,
    PartReceived,
    PartSent,
    ReplicaJoins,
    ReplicaLost,
    StateReceived,
)
from wanbed.workloads.transport.frame import FrameError, FrameHeader, FrameKind
from wanbed.workloads.transport.links_config import LinksConfig, StarConfig
from wanbed.workloads.transport.peer import Peer, TransportError
from wanbed.workloads.transport.receive_buffers import BufferPool
from wanbed.workloads.transport.star_end import StarEnd
from wanbed.workloads.transport.star_sum import Gathering, StarSums
from wanbed.workloads.transport.striped_transport import StripedTransport

PATIENCE_S = 60


def add(total: memoryview, part: memoryview) -> None:
    into = np.frombuffer(total, "i4")
    np.add(into, np.frombuffer(part, "i4"), out=into)


def peer(rank: int) -> Peer:
    return Peer(rank, f"host-{rank}", LOOPBACK, 1000, 2)


class Replica:
    """A rank with its transport, and a thread of the test that plays its main thread."""

    def __init__(self, star: StarConfig, rank: int, sockets: dict[int, list[socket.socket]], *, blank: bool) -> None:
        self.rank, self.pool = rank, BufferPool()
        self.events: SimpleQueue[Event] = SimpleQueue()
        self.gathered: list[Gathered] = []
        self.lost: list[int] = []
        self.error: Exception | None = None
        self.closed = False
        peers = tuple(peer(each) for each in star.peers_of(rank))
        config = LinksConfig(rank, rank, 0, peers, iterations=1, star=star)
        self.transport = StripedTransport(config, sockets, self.pool, self._report, blank=blank)
        self.gathering: Gathering | None = None
        if rank == star.gatherer:
            self.gathering = Gathering(star, peer(rank), self.transport, self.pool, add=add, report=self.events.put)
            self.gathering.start()
        self.sums = StarSums(self.transport, self.pool, self.gathering)
        self.transport.start()

    def _report(self, event: Event) -> None:
        if self.gathering is not None and isinstance(event, PartReceived | ReplicaLost | ReplicaJoins):
            self.gathering.handle(event)
        else:
            self.events.put(event)

    def await_event(self) -> None:
        event = self.events.get(timeout=PATIENCE_S)
        match event:
            case Failed(error):
                raise error
            case Closed():
                self.closed = True
            case Gathered():
                self.gathered.append(event)
            case ReplicaLost():
                self.lost.append(event.peer.rank)
            case PartReceived() | PartSent():
                self.sums.handle(event)

    def train(self, arrays: list[np.ndarray], parts: list[int], begin: dict[int, Flag] | None = None) -> None:
        try:
            for number, array in enumerate(arrays):
                if begin is not None and number in begin:
                    assert begin[number].wait(PATIENCE_S)
                parts.append(self.sums.run(number, memoryview(array).cast("B"), self.await_event))
            self.transport.close()
            while not self.closed:
                self.await_event()
            if self.gathering is not None:
                self.gathering.close()
        except Exception as error:
            self.error = error


class Star:
    """Replicas 0 to n - 1 joined by socket pairs; replica 0 gathers."""

    def __init__(self, config: StarConfig, *, blank: bool = False) -> None:
        self.pairs: dict[int, dict[int, list[socket.socket]]] = {rank: {} for rank in config.ranks}
        for rank in config.ranks[1:]:
            for _ in range(config.connections):
                ours, theirs = socket.socketpair()
                for made, one, other in ((ours, 0, rank), (theirs, rank, 0)):
                    made.setblocking(False)
                    self.pairs[one].setdefault(other, []).append(made)
        self.replicas = [Replica(config, rank, self.pairs[rank], blank=blank) for rank in config.ranks]

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait until a condition holds, or a replica has failed."""
        until_within(PATIENCE_S, lambda: reached() or any(one.error is not None for one in self.replicas))
        assert [one.error for one in self.replicas] == [None] * len(self.replicas)

    def __enter__(self) -> "Star":
        return self

    def __exit__(self, *_: object) -> None:
        hang_up([made for by_peer in self.pairs.values() for sockets in by_peer.values() for made in sockets])


@settings(max_examples=20, deadline=None)
@given(
    replicas=st.integers(2, 5),
    sizes=st.lists(st.integers(1, 20) | st.integers(1, 200_000), min_size=1, max_size=3),
    sums=st.integers(1, 5),
    blank=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_without_a_quorum_every_replica_gets_the_sum_of_all(
    replicas: int, sizes: list[int], sums: int, blank: bool, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    arrays = [
        [generator.integers(0, 100, sizes[number % len(sizes)]).astype("i4") for number in range(sums)]
        for _ in range(replicas)
    ]
    expected = [sum((each[number] for each in arrays[1:]), start=arrays[0][number]) for number in range(sums)]
    config = StarConfig(tuple(range(replicas)), tuple(4 * size for size in sizes), sums, connections=2)
    with Star(config, blank=blank) as star:
        parts: list[list[int]] = [[] for _ in arrays]
        threads = [
            Thread(target=one.train, args=(own, found))
            for one, own, found in zip(star.replicas, arrays, parts, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert [one.error for one in star.replicas] == [None] * replicas
        assert parts == [[replicas] * sums] * replicas
        assert [(each.number, each.late) for each in star.replicas[0].gathered] == [(n, 0) for n in range(sums)]
    for own in arrays if not blank else ():
        for array, total in zip(own, expected, strict=True):
            np.testing.assert_array_equal(array, total)


def test_a_late_replica_keeps_nobody_waiting_and_counts_in_the_next_sum() -> None:
    config = StarConfig((0, 1, 2), (4,), 2, quorum=2)
    arrays = [[np.full(1, 10**rank, "i4") for _ in range(2)] for rank in range(3)]
    with Star(config) as star:
        late, second = Flag(), Flag()
        parts: list[list[int]] = [[], [], []]
        begins: list[dict[int, Flag]] = [{}, {1: second}, {0: late}]
        threads = [
            Thread(target=one.train, args=(own, found, begin))
            for one, own, found, begin in zip(star.replicas, arrays, parts, begins, strict=True)
        ]
        for thread in threads:
            thread.start()
        star.until(lambda: all(parts[:2]))
        late.set()
        # The late one has the first sum at once, and with its next part the second sum has its quorum.
        star.until(lambda: len(parts[0]) == 2)
        second.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert [one.error for one in star.replicas] == [None] * 3
        gathered = star.replicas[0].gathered
    assert [[int(array[0]) for array in own] for own in arrays] == [[11, 201]] * 3
    assert parts == [[2, 3]] * 3
    assert [each.late for each in gathered] == [0, 1]
    assert sorted(gathered[1].ranks) == [0, 2, 2]


@pytest.mark.parametrize("blank", [False, True])
def test_with_a_quorum_the_others_go_on_without_a_replica_that_is_lost(blank: bool) -> None:
    config = StarConfig((0, 1, 2), (400_000,), 3, quorum=3)
    arrays = [[np.full(100_000, 10**rank, "i4") for _ in range(3)] for rank in range(3)]
    with Star(config, blank=blank) as star:
        parts: list[list[int]] = [[], [], []]
        threads = [
            Thread(target=one.train, args=(own, found))
            for one, own, found in zip(star.replicas[:2], arrays, parts, strict=False)
        ]
        for thread in threads:
            thread.start()
        hang_up(star.pairs[2][0])
        for thread in threads:
            thread.join(PATIENCE_S)
        assert [one.error for one in star.replicas[:2]] == [None, None]
        assert parts[:2] == [[2] * 3] * 2
        assert star.replicas[0].lost == [2]
    assert blank or [int(array[0]) for array in arrays[1]] == [11] * 3


def test_without_a_quorum_a_replica_that_is_lost_ends_all() -> None:
    config = StarConfig((0, 1, 2), (4,), 1)
    with Star(config) as star:
        threads = [Thread(target=one.train, args=([np.zeros(1, "i4")], [])) for one in star.replicas[:2]]
        for thread in threads:
            thread.start()
        hang_up(star.pairs[2][0])
        for thread in threads:
            thread.join(PATIENCE_S)
        assert all(isinstance(one.error, TransportError) for one in star.replicas[:2])


def test_a_lost_gatherer_ends_the_others() -> None:
    config = StarConfig((0, 1, 2), (4,), 1, quorum=1)
    with Star(config) as star:
        threads = [Thread(target=one.train, args=([np.zeros(1, "i4")], [])) for one in star.replicas[1:]]
        for thread in threads:
            thread.start()
        hang_up([*star.pairs[0][1], *star.pairs[0][2]])
        for thread in threads:
            thread.join(PATIENCE_S)
        assert all(isinstance(one.error, TransportError) for one in star.replicas[1:])


def test_a_replica_that_is_connected_again_gets_a_state_and_every_later_sum_once() -> None:
    config = StarConfig((0, 1, 2), (4,), 3, quorum=2, state_bytes=8)
    arrays = [[np.full(1, 10**rank, "i4") for _ in range(3)] for rank in range(3)]
    with Star(config) as star:
        gatherer, other = star.replicas[:2]
        second, third = Flag(), Flag()
        parts: list[list[int]] = [[], []]
        threads = [
            Thread(target=one.train, args=(own, found, {1: second, 2: third}))
            for one, own, found in zip(star.replicas[:2], arrays, parts, strict=False)
        ]
        for thread in threads:
            thread.start()
        star.until(lambda: all(parts))
        ours, theirs = socket.socketpair()
        for made in (ours, theirs):
            made.setblocking(False)
        # Its first connections are still there: it was started again before anybody knew.
        gatherer.transport.connect_again(2, [ours])
        links = LinksConfig(2, 2, 0, (peer(0),), iterations=5, star=replace(config, joins=True))
        events: SimpleQueue[Event] = SimpleQueue()
        back = StripedTransport(links, {0: [theirs]}, BufferPool(), events.put)
        back.start()
        second.set()
        star.until(lambda: [len(each) for each in parts] == [2, 2])
        assert gatherer.gathering is not None
        # The own replica has applied one sum; the second one is complete, and not in the state.
        gatherer.gathering.admit(2, 4, 1, memoryview(b"weights!"))
        third.set()
        state = events.get(timeout=PATIENCE_S)
        assert isinstance(state, StateReceived)
        assert (state.iteration, state.sums, bytes(state.payload)) == (4, 1, b"weights!")
        sums = [events.get(timeout=PATIENCE_S) for _ in range(2)]
        assert [each.number for each in sums if isinstance(each, PartReceived)] == [1, 2]
        back.close()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert (gatherer.error, other.error) == (None, None)
        assert gatherer.lost == [2]


class _Link:
    def __init__(self, of: Peer) -> None:
        self.peer = of


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"iteration": 2}, "a part of sum 2 as 1 parts, which does not exist"),
        ({"number": 2}, "a part of sum 1 as 2 parts, which does not exist"),
        ({"total_bytes": 8, "length": 8}, "8 of 8 bytes: expected are 4"),
        ({"length": 3}, "3 of 4 bytes: expected are 4, and it is not cut there"),
    ],
)
def test_a_chunk_of_no_part_is_refused(changes: dict[str, Any], fault: str) -> None:
    star = StarConfig((0, 1), (4,), 2)
    config = LinksConfig(0, 0, 0, (peer(1),), iterations=1, star=star)
    events: list[Event] = []
    end = StarEnd(config, star, {1: peer(1)}, BufferPool(), events.append)
    whole = {"owner": 1, "iteration": 1, "number": 1, "total_bytes": 4, "offset": 0, "length": 4, **changes}
    link: Any = _Link(peer(1))
    with pytest.raises(FrameError, match=fault):
        end.place(link, FrameHeader(FrameKind.PART, **whole))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("ranks", ((0,), (4,), 1)),
        ("ranks", ((0, 0), (4,), 1)),
        ("sizes_bytes", ((0, 1), (), 1)),
        ("sizes_bytes", ((0, 1), (0,), 1)),
        ("sums", ((0, 1), (4,), -1)),
        ("quorum", ((0, 1), (4,), 1, 3)),
        ("connections", ((0, 1), (4,), 1, None, 0)),
        ("state_bytes", ((0, 1), (4,), 1, 1, 1, -1)),
        ("state_bytes", ((0, 1), (4,), 1, None, 1, 8)),
    ],
)
def test_a_star_that_cannot_be_is_refused(field: str, values: tuple) -> None:
    with pytest.raises(ValueError, match=f"{field}:"):
        StarConfig(*values)
