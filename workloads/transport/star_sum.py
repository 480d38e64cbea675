"""Sum over a star: every replica sends its part to the one that gathers, which sends the sum back to all.

At the rank that gathers, one thread sums parts as they come, whatever its own replica computes meanwhile, and another
lets replicas connect again that were lost. At each replica the sum is used as that of a ring
(``wanbed.workloads.transport.ring_sum``), also in a thread beside computation.
"""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread

from wanbed.workloads.transport.event import (
    Event,
    Failed,
    Gathered,
    PartReceived,
    PartSent,
    ReplicaJoins,
    ReplicaLost,
    SegmentReceived,
    SegmentsSent,
    StateReceived,
)
from wanbed.workloads.transport.links_config import StarConfig
from wanbed.workloads.transport.peer import Peer, TransportError
from wanbed.workloads.transport.quorum_rounds import QuorumRounds, StarPart, StarSum
from wanbed.workloads.transport.receive_buffers import BufferPool
from wanbed.workloads.transport.rendezvous import Rendezvous
from wanbed.workloads.transport.striped_transport import StripedTransport
from wanbed.workloads.transport.summing_thread import SumEvents, SummingThread

Add = Callable[[memoryview, memoryview], None]

_Handled = PartReceived | ReplicaLost | ReplicaJoins | Failed


@dataclass(frozen=True)
class _Admission:
    """A replica begins at ``iteration`` with ``state``, in which ``sums`` sums are applied."""

    rank: int
    iteration: int
    sums: int
    state: memoryview


class Gathering:
    """Gathers the parts of a star at the replica ``own``.

    ``add(total, part)`` adds a part to a total in place. The thread calls ``report`` with three kinds of events:
    PartReceived, a sum for the own replica; Gathered, the parts that a sum is of; and Failed. ``close`` ends it.
    """

    def __init__(
        self,
        star: StarConfig,
        own: Peer,
        transport: StripedTransport,
        pool: BufferPool,
        *,
        add: Add,
        report: Callable[[Event], None],
    ) -> None:
        self.star = star
        self._own = own
        self._transport = transport
        self._pool = pool
        self._add = add
        self._report = report
        self._rounds = QuorumRounds(star.ranks, star.quorum or len(star.ranks), star.sums, star.fragments)
        self._payloads: dict[StarPart, memoryview] = {}
        self._sums: dict[int, tuple[int, memoryview]] = {}
        self._joining: set[int] = set()
        self._events: SimpleQueue[_Handled | _Admission | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="gathering", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def give(self, number: int, payload: memoryview) -> None:
        """Give the own replica's part of sum ``number``. The payload belongs to the gathering from here on."""
        now_ns = time.monotonic_ns()
        self._events.put(PartReceived(self._own, number, 1, now_ns, now_ns, payload))

    def admit(self, rank: int, iteration: int, sums: int, state: memoryview) -> None:
        """Let a replica that joins begin at ``iteration`` with ``state``, the own one's after ``sums`` sums.

        It gets all later sums. The state must not change any more. Nothing happens if it has been lost again.
        """
        self._events.put(_Admission(rank, iteration, sums, state))

    def handle(self, event: _Handled) -> None:
        """Handle an event of the transport. May be called by any thread."""
        self._events.put(event)

    def close(self) -> int:
        """End the thread, once it has handled all events so far. Return how many parts came after the last sum."""
        self._events.put(None)
        self._thread.join()
        return len(self._rounds.dropped)

    def _run(self) -> None:
        try:
            while (event := self._events.get()) is not None:
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, ReplicaLost):
                    self._report(event)
                    self._joining.discard(event.peer.rank)
                    done = self._rounds.lose(event.peer.rank)
                elif isinstance(event, ReplicaJoins):
                    self._report(event)
                    self._joining.add(event.peer.rank)
                    continue
                elif isinstance(event, _Admission):
                    self._begin_again(event)
                    continue
                else:
                    part = StarPart(event.peer.rank, event.number)
                    if event.peer == self._own:
                        # It has applied all sums before this one.
                        self._sums = {number: each for number, each in self._sums.items() if number >= part.number}
                    self._payloads[part] = event.payload
                    done = self._rounds.give(part)
                    for dropped in self._rounds.dropped:
                        if dropped in self._payloads:
                            self._pool.give_back(self._payloads.pop(dropped))
                if done is not None:
                    self._complete(done)
        except Exception as fault:
            # No other code sees an error of this thread, and every replica would wait for the sum for ever.
            self._report(Failed(fault))

    def _begin_again(self, admission: _Admission) -> None:
        """Send a replica what it begins with, and the sums that are complete but not in that."""
        rank = admission.rank
        if rank not in self._joining:
            return
        self._joining.remove(rank)
        for part in self._rounds.rejoin(rank):
            self._pool.give_back(self._payloads.pop(part))
        self._transport.send_state(rank, admission.iteration, admission.sums, admission.state)
        for number, (parts, total) in sorted(self._sums.items()):
            if number >= admission.sums:
                self._transport.send_sum_again(rank, number, parts, total)

    def _complete(self, done: StarSum) -> None:
        """Sum the parts in the order of their ranks, so that the same parts give the same bits, and send the sum."""
        start_ns = time.monotonic_ns()
        total, *others = (self._payloads.pop(part) for part in sorted(done.parts))
        for payload in others:
            if not self._transport.blank:
                self._add(total, payload)
            self._pool.give_back(payload)
        self._sums[done.number] = len(done.parts), total
        self._transport.send_part(done.number, len(done.parts), total)
        self._report(Gathered(done.number, tuple(part.replica for part in done.parts), done.late))
        times_ns = start_ns, time.monotonic_ns()
        self._report(PartReceived(self._own, done.number, len(done.parts), *times_ns, total))


class Joins(AbstractContextManager["Joins"]):
    """Accepts the calls of replicas that come back, and hands their connections to ``transport``, while it is entered.

    ``rendezvous`` has all replicas as callers. ``report`` is called from the thread with Failed, if that fails.
    """

    def __init__(self, rendezvous: Rendezvous, transport: StripedTransport, report: Callable[[Event], None]) -> None:
        self._rendezvous = rendezvous
        self._transport = transport
        self._report = report
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = Thread(target=self._run, name="joins", daemon=True)

    def __enter__(self) -> "Joins":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)

    def _run(self) -> None:
        try:
            while (found := self._rendezvous.await_caller(self._stop)) is not None:
                self._transport.connect_again(*found)
        except Exception as fault:
            self._report(Failed(fault))


def await_state(events: "SimpleQueue[Event]") -> StateReceived:
    """Wait at a replica that joins for what it begins with. Raise the error that ends the connections before."""
    while True:
        match events.get():
            case StateReceived() as state:
                return state
            case Failed(error):
                raise error


class StarSums:
    """Gives this replica's part of each sum, and takes the sum. Only one thread calls ``run`` and ``handle``.

    ``gathering`` is that of the replica that gathers, None at any other. A replica may be late: the sum that it gives
    its part for is then there already, without that part, and it goes on at once. It gives no part before the one
    before has left, so that at most one waits to be sent.
    """

    def __init__(self, transport: StripedTransport, pool: BufferPool, gathering: Gathering | None = None) -> None:
        self._transport = transport
        self._pool = pool
        self._gathering = gathering
        self._sums: dict[int, PartReceived] = {}
        self._leaving: dict[int, memoryview] = {}

    def handle(self, event: PartReceived | PartSent) -> None:
        """Handle an event of the star from the rank's queue."""
        if isinstance(event, PartSent):
            self._pool.give_back(self._leaving.pop(event.number))
        else:
            self._sums[event.number] = event

    def run(self, number: int, data: memoryview, await_event: Callable[[], None]) -> int:
        """Give ``data`` as this replica's part of sum ``number``, and replace it by the sum. Return its parts.

        ``await_event`` waits for one event of the rank's queue and handles it, an event of the star by ``handle``. Its
        errors end the run. Every replica calls this for each number in order, with the same size. Raise TransportError
        if the sum does not fit.
        """
        while self._leaving:
            await_event()
        part = self._pool.take(data.nbytes)
        if not self._transport.blank:
            part[:] = data
        if self._gathering is not None:
            self._gathering.give(number, part)
        else:
            self._leaving[number] = part
            self._transport.send_part(number, 1, part)
        while number not in self._sums:
            await_event()
        found = self._sums.pop(number)
        if found.payload.nbytes != data.nbytes:
            raise TransportError(f"{found.peer} sent a sum of {found.payload.nbytes} bytes, not {data.nbytes}")
        if not self._transport.blank:
            data[:] = found.payload
        if self._gathering is None:
            self._pool.give_back(found.payload)
        return found.parts


class StarThread(SummingThread):
    """The sums of one rank over its star, from number ``first`` on."""

    def __init__(self, star: StarSums, events: SumEvents, report: Callable[[Event], None], *, first: int = 0) -> None:
        def handle(event: SegmentReceived | SegmentsSent | PartReceived | PartSent) -> None:
            assert isinstance(event, PartReceived | PartSent)
            star.handle(event)

        super().__init__(star.run, handle, events, report, first)
