"""One rank: ``python -m wanbed.workloads.rank CONFIG.json`` runs one stage of one pipeline on one GPU.

A rank asks its schedule for the next action, computes it, exchanges activations and gradients with the neighbour
stages, and all-reduces its gradients with the other replicas of its stage. All ranks begin at the same instant. After
that there is no barrier: an iteration begins as soon as the schedule and the data allow. The exit status is 0 if all
iterations are done and every peer has shut down; otherwise 1, with one line on stderr, at every rank within 10 s of the
fault.
"""

import sys
import time
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from queue import SimpleQueue

from wanbed.workloads.compute.backends.backend import Computation, RankContext, create_backend
from wanbed.workloads.compute.compute import BucketCompute, SynchronizedCompute
from wanbed.workloads.connected_rank import end_process
from wanbed.workloads.host_process import print_line, run_configured
from wanbed.workloads.kept_files import resume
from wanbed.workloads.rank_config import RankConfig, read_rank_config
from wanbed.workloads.rank_loop import Rank
from wanbed.workloads.replica_sums import (
    BucketSums,
    DeviceSums,
    Gatherer,
    ReplicaSums,
    ReplicaSynchronization,
    TransportSums,
)
from wanbed.workloads.schedules.schedule import ScheduleError
from wanbed.workloads.serving.gpu_worker import GpuWorker, WorkerThread, serving_gpu
from wanbed.workloads.serving.serving_configs import GpuServingConfig
from wanbed.workloads.serving.shared_gpu import SharedGpu
from wanbed.workloads.transport.all_reduce import AllReduce
from wanbed.workloads.transport.butterfly_sum import ButterflyAllReduce
from wanbed.workloads.transport.chain_sum import ChainAllReduce
from wanbed.workloads.transport.chunk_transport import ChunkMessages, ChunkTransport
from wanbed.workloads.transport.event import (
    Event,
    Failed,
    PartReceived,
    PartSent,
    Received,
    ReplicaJoins,
    ReplicaLost,
    SegmentReceived,
    SegmentsSent,
    StateReceived,
)
from wanbed.workloads.transport.gloo_sum import GlooAllReduce
from wanbed.workloads.transport.links_config import LinksConfig
from wanbed.workloads.transport.peer import Peer, TransportError
from wanbed.workloads.transport.receive_buffers import BufferPool
from wanbed.workloads.transport.rendezvous import Rendezvous
from wanbed.workloads.transport.ring_sum import BucketThread, RingAllReduce
from wanbed.workloads.transport.star_sum import Gathering, Joins, StarSums, StarThread, await_state
from wanbed.workloads.transport.striped_transport import StripedTransport
from wanbed.workloads.transport.summing_thread import SumEvents, SummingThread


def run_rank(config: RankConfig) -> None:
    """Run the rank of ``config`` in this process. Raise the error that ends it, one line with the cause."""
    config.process.prepare()
    if config.process.epoch_ns > time.monotonic_ns():
        raise ValueError("process.epoch_ns: lies in the future, take CLOCK_MONOTONIC before the rank is started")
    # Created again for each iteration. Here too, so that an invalid schedule is reported before any rank connects.
    schedule = config.schedule.create()
    pool = BufferPool()
    failure = _Failure()
    serving = None if config.serving is None else _Serving(config.serving, serving_gpu(config.serving))
    gpu = None if serving is None else serving.gpu
    backend = create_backend(config.compute.backend, config.compute.options)
    computation = backend.create(
        config.compute, RankContext(schedule.kinds(config.place.stage), failure.check, pool, gpu)
    )
    if computation.model is not None:
        resume(config.kept, computation.model.files)
    links = config.links
    joins_others = links.star is not None and links.star.joins
    rendezvous = _rendezvous(config, [peer.rank for peer in links.peers] if joins_others else None)
    worker = None if serving is None else serving.worker(config)
    sockets = rendezvous.rendezvous(config.rendezvous.timeout_ns)
    events: SimpleQueue[Event] = SimpleQueue()
    sum_events: SumEvents = SimpleQueue()
    apart = links.rings.buckets > 0 or computation.synchronized is not None
    reports = _Reports(computation, pool, events, sum_events if apart else None, len(links.rings.replicas))
    blank = not computation.reads_payloads
    if config.shape.virtual_stages == 1:
        transport = StripedTransport(links, sockets, pool, reports.handle, blank=blank)
    else:
        messages = ChunkMessages(schedule.virtual, config.shape.microbatches)
        transport = ChunkTransport(links, messages, sockets, pool, reports.handle, blank=blank)
    failure.transport = transport
    connections = _Connections(transport, events, sum_events)
    joins = _joins(config, connections)
    synchronized, gathering, gatherer = computation.synchronized, None, None
    if synchronized is not None:
        reports.gathering = gathering = _gathering(config, synchronized, connections)
    transport.start()
    joined = await_state(events) if joins_others else None
    sums: ReplicaSums
    if synchronized is None:
        sums = _gradient_sums(config, computation, connections)
    else:
        thread = _summing_thread(config, synchronized, connections, gathering, joined)
        sums = ReplicaSynchronization(
            computation.compute,
            synchronized,
            thread,
            iterations=config.iterations,
            applied=0 if joined is None else joined.sums,
        )
        gatherer = None if gathering is None else Gatherer(gathering, sums)
    rank = Rank(config, transport, events, computation, sums, gpu=gpu, gatherer=gatherer, joined=joined)
    _train(config, rank, worker, joins)
    sums.close()


def _train(config: RankConfig, rank: Rank, worker: WorkerThread | None, joins: AbstractContextManager[object]) -> None:
    """Train as soon as all ranks can, and complete the log."""
    config.process.await_all()
    if worker is not None:
        worker.start()
    with joins:
        rank.run()
    if worker is not None:
        worker.stop()
    rank.complete_log()


@dataclass(frozen=True)
class _Connections:
    """The transport of the rank, and the queues of its events: those of the loop, and those of a thread that sums."""

    transport: StripedTransport
    events: "SimpleQueue[Event]"
    sum_events: SumEvents


def _gradient_sums(config: RankConfig, computation: Computation, connections: _Connections) -> ReplicaSums:
    """Return the sums of the gradients of every iteration, over the collective or the replicas that are configured."""
    compute, element_bytes, report = computation.compute, computation.element_bytes, connections.events.put
    if computation.all_reduce is not None:
        return DeviceSums(compute, computation.all_reduce(report))
    if not config.links.rings.replicas:
        return ReplicaSums(compute)
    over, buckets = _all_reduce(config.links, connections.transport), config.links.rings.buckets
    if not buckets or not isinstance(compute, BucketCompute):
        return TransportSums(compute, over, element_bytes, config.links.rings.sums)
    thread = BucketThread(over, connections.sum_events, element_bytes, compute.add, report)
    return BucketSums(compute, thread, buckets)


def _all_reduce(links: LinksConfig, transport: StripedTransport) -> AllReduce:
    if links.rings.butterfly:
        return ButterflyAllReduce(links, transport)
    if links.rings.chained:
        return ChainAllReduce(links, transport)
    return GlooAllReduce(links, transport) if links.rings.announced else RingAllReduce(links, transport)


def _summing_thread(
    config: RankConfig,
    synchronized: SynchronizedCompute,
    connections: _Connections,
    gathering: Gathering | None,
    joined: StateReceived | None,
) -> SummingThread:
    """Return the thread that sums pseudo-gradients over the star or ring, after what a rank that joins begins with."""
    transport, sum_events, report = connections.transport, connections.sum_events, connections.events.put
    if joined is not None:
        synchronized.take_state(joined.payload)
    if config.links.star is not None:
        star = StarSums(transport, transport.pool, gathering)
        return StarThread(star, sum_events, report, first=0 if joined is None else joined.sums)
    element_bytes = synchronized.rules.wire.element_bytes
    return BucketThread(
        RingAllReduce(config.links, transport), sum_events, element_bytes, synchronized.add_encoded, report
    )


def _gathering(config: RankConfig, synchronized: SynchronizedCompute, connections: _Connections) -> Gathering | None:
    """Return what gathers the parts of the star at this rank, running; None if this rank gathers none."""
    star, transport = config.links.star, connections.transport
    if star is None or config.rank != star.gatherer:
        return None

    def report(event: Event) -> None:
        if isinstance(event, PartReceived | Failed):
            connections.sum_events.put(event)
        if not isinstance(event, PartReceived):
            connections.events.put(event)

    own = Peer(config.rank, config.host, config.rendezvous.listen_address, None, 1)
    gathering = Gathering(star, own, transport, transport.pool, add=synchronized.add_encoded, report=report)
    gathering.start()
    return gathering


def _joins(config: RankConfig, connections: _Connections) -> AbstractContextManager[object]:
    """Return what lets replicas of the star come back to this rank while it is entered; nothing if none does."""
    star = config.links.star
    if star is None or not star.state_bytes or config.rank != star.gatherer:
        return nullcontext()
    return Joins(_rendezvous(config, ()), connections.transport, connections.events.put)


def _rendezvous(config: RankConfig, calls: Collection[int] | None) -> Rendezvous:
    """Return how this rank meets its peers. It calls those of ``calls``, None for all of higher ranks."""
    return Rendezvous.configured(
        config.rendezvous, config.links, lambda note: print_line(_name(config), note), calls=calls
    )


@dataclass(frozen=True)
class _Serving:
    """The prefill of a rank, on the GPU that it shares."""

    config: GpuServingConfig
    gpu: SharedGpu

    def worker(self, config: RankConfig) -> WorkerThread:
        """Return the thread of its worker, which listens from here on."""
        worker = GpuWorker(
            self.config, config.rendezvous.run_token, self.gpu, lambda note: print_line(_name(config), note)
        )
        return WorkerThread(worker)


class _Reports:
    """Passes each event of the transport to the thread that handles it. The I/O thread calls ``handle``.

    ``rings`` is the number of the ring of the gradient norm, whose events are the main thread's.
    """

    def __init__(
        self,
        computation: Computation,
        pool: BufferPool,
        events: "SimpleQueue[Event]",
        sum_events: SumEvents | None,
        rings: int,
    ) -> None:
        self._reads_payloads = computation.reads_payloads
        model = computation.model
        self._copies = None if model is None or not model.device.overlaps_copies else model.device
        self._pool = pool
        self._events = events
        self._sum_events = sum_events
        self._rings = rings
        self.gathering: Gathering | None = None

    def handle(self, event: Event) -> None:
        """Pass an event on."""
        # The main thread may compute for long. Buffers that it does not read would accumulate until it is done.
        if not self._reads_payloads and isinstance(event, Received):
            self._pool.give_back(event.payload)
        elif self._copies is not None and isinstance(event, Received):
            self._copies.begin_copy(event.iteration, event.message, event.payload)
        if self.gathering is not None and isinstance(event, PartReceived | ReplicaLost | ReplicaJoins | Failed):
            self.gathering.handle(event)
            if not isinstance(event, Failed):
                return
        if isinstance(event, SegmentReceived | SegmentsSent) and event.ring == self._rings:
            self._events.put(event)
            return
        if self._sum_events is not None and isinstance(
            event, SegmentReceived | SegmentsSent | PartReceived | PartSent | Failed
        ):
            self._sum_events.put(event)
            if not isinstance(event, Failed):
                return
        self._events.put(event)


class _Failure:
    """Passes a failure of the connections to a computation, which is created before they are established."""

    transport: StripedTransport | None = None

    def check(self) -> None:
        """Raise the error of the transport if it has failed."""
        if self.transport is not None:
            self.transport.raise_if_failed()


def main(arguments: list[str]) -> int:
    """Run the rank configured by the file named on the command line. Return the exit status."""
    return run_configured(
        arguments,
        module="wanbed.workloads.rank",
        name="wanbed rank",
        read=read_rank_config,
        run=run_rank,
        faults=(TransportError, ScheduleError),
        named=_name,
    )


def _name(config: RankConfig) -> str:
    return f"wanbed rank {config.rank} ({config.host})"


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
