"""The loop of one rank: ask its schedule, compute, exchange messages, sum gradients, and log what it did."""

import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from wanbed.results.records.span_log import NO_MICROBATCH, PREFILL, Span, SpanLog, SpanLogHeader
from wanbed.workloads.checkpoints import Checkpoints
from wanbed.workloads.collective.gradient_norm import GradientNorm
from wanbed.workloads.compute.backends.backend import Computation
from wanbed.workloads.compute.device.copy_thread import CopyThread
from wanbed.workloads.evaluation.snapshots import Snapshots
from wanbed.workloads.message import Message
from wanbed.workloads.rank_config import RankConfig
from wanbed.workloads.replica_synchronization import ReplicaSynchronization
from wanbed.workloads.schedules.action import Action
from wanbed.workloads.schedules.schedule import Schedule, ScheduleError, create_schedule
from wanbed.workloads.schedules.virtual.group_by_group import group_by_group
from wanbed.workloads.schedules.virtual.virtual_stages import VirtualStages
from wanbed.workloads.serving.gpu.shared_gpu import SharedGpu
from wanbed.workloads.transport.event import (
    BucketSummed,
    Closed,
    DeviceSummed,
    Event,
    Failed,
    Gathered,
    Received,
    ReplicaJoins,
    ReplicaLost,
    SegmentReceived,
    SegmentsSent,
    Sent,
    StateReceived,
)
from wanbed.workloads.transport.ring.bucket_ring import BucketRing
from wanbed.workloads.transport.ring.ring import RingAllReduce
from wanbed.workloads.transport.star.gathering import Gathering
from wanbed.workloads.transport.star.star_sum import StarSums
from wanbed.workloads.transport.star.star_thread import StarThread
from wanbed.workloads.transport.striped_transport import StripedTransport
from wanbed.workloads.transport.summing_thread import SumEvents, SummingThread

if TYPE_CHECKING:
    from wanbed.workloads.collective.device_all_reduce import DeviceAllReduce


class Rank:
    """The rank's loop. Construct it when the connections are established and the transport runs.

    ``gpu``: the GPU that ``computation`` shares, which is notified when the rank waits for messages; None if it shares
    none. ``all_reduce`` sums the gradients on the device, instead of the ring over the transport; None for the ring.
    Where buckets are summed or replicas synchronise, the events of ring or star are in ``sum_events`` and not in
    ``events``. ``gathering`` is that of the rank which gathers the star's parts, None at any other.
    ``joined`` is what a rank begins with that joins a training under way, None for one that begins with the others.
    """

    def __init__(
        self,
        config: RankConfig,
        transport: StripedTransport,
        events: "SimpleQueue[Event]",
        computation: Computation,
        *,
        gpu: SharedGpu | None = None,
        all_reduce: "DeviceAllReduce | None" = None,
        sum_events: SumEvents | None = None,
        gathering: Gathering | None = None,
        joined: StateReceived | None = None,
    ) -> None:
        self._config = config
        self._gpu = gpu
        self._device = device = computation.device
        self._all_reduce = all_reduce
        self._summed = False
        self._transport = transport
        self._events = events
        self._compute = compute = computation.compute
        self._save_gradients = computation.save_gradients
        self._ring = RingAllReduce(config.links, transport) if config.links.rings else None
        self._norm: GradientNorm | None = None
        if config.links.norm_ring is not None:
            self._norm = GradientNorm(config.links, transport, computation.squares)
        self._in_buckets, self._unsummed = computation.in_buckets, 0
        self._bucket_ring: BucketRing | None = None
        self._applied_after, self._parts = 0, 0
        if self._ring is not None and sum_events is not None and config.links.buckets:
            element_bytes = computation.element_bytes
            self._bucket_ring = BucketRing(self._ring, sum_events, element_bytes, compute.add, events.put)
        self._gathering = gathering
        self._joining: set[int] = set()
        self._joined = joined
        self._replicas = None if sum_events is None else self._replica_synchronization(computation, sum_events)
        self._element_bytes = computation.element_bytes
        self._log = SpanLog(
            Path(config.span_log),
            SpanLogHeader(config.rank, config.host, config.datacenter, config.gpu, config.pipeline, config.stage),
        )
        self._computed: list[Span] = []
        self._copy_thread: CopyThread | None = None
        if device is not None and device.overlaps_copies:
            self._copy_thread = CopyThread(compute.outgoing, transport.send, lambda fault: events.put(Failed(fault)))
        self._checkpoints: Checkpoints | None = None
        if config.checkpoints is not None and config.pipeline == 0 and computation.save_state is not None:
            self._checkpoints = Checkpoints(config.checkpoints, config.stage, computation.save_state)
        self._snapshots: Snapshots | None = None
        if config.snapshots is not None and computation.save_weights is not None:
            self._snapshots = Snapshots(config.snapshots, config.pipeline, config.stage, computation.save_weights)
        self._early: dict[int, list[tuple[Message, memoryview]]] = {}
        self._iteration = 0
        # What a group passes on to another stays on the device.
        self._passes_payloads = computation.reads_payloads and computation.groups is None
        self._groups, self._swapping = computation.groups, computation.swapping
        self._virtual: VirtualStages | None = None
        self._schedule: Schedule | None = None
        self._unsent = 0
        self._closed = False

    def _replica_synchronization(
        self, computation: Computation, sum_events: SumEvents
    ) -> ReplicaSynchronization | None:
        """Return this rank's synchronisations over its star or ring, None where gradients are summed instead."""
        config, synchronized, report = self._config, computation.synchronized, self._events.put
        synchronization = config.compute.synchronization
        if synchronization is None:
            return None
        assert synchronized is not None
        before = 0
        if self._joined is not None:
            synchronized.take_state(self._joined.payload)
            before = self._joined.sums
        sums: SummingThread
        if config.links.star is not None:
            star = StarSums(self._transport, self._transport.pool, self._gathering)
            sums = StarThread(star, sum_events, report, first=before)
        else:
            assert self._ring is not None
            element_bytes = synchronization.wire.element_bytes
            sums = BucketRing(self._ring, sum_events, element_bytes, synchronized.add_encoded, report)
        return ReplicaSynchronization(synchronization, synchronized, sums, iterations=config.iterations, applied=before)

    def run(self) -> None:
        """Run every iteration, then shut the transport down.

        Raise TransportError or ScheduleError. Spans of earlier iterations are in the log even then.
        """
        first = self._config.links.first_iteration
        if self._joined is not None:
            first = self._joined.iteration
            self._log.record_joined(first, time.monotonic_ns() - self._config.epoch_ns)
        for iteration in range(first, self._config.iterations):
            self._iteration = iteration
            self._run_iteration(self._begin_iteration())
            self._update()
            self._synchronize()
            self._admit()
            if self._checkpoints is not None:
                self._checkpoints.finished(iteration)
            if self._snapshots is not None:
                self._snapshots.finished(iteration)
            self._record_computed()
            self._record_prefills()
            self._log.flush()
        self._schedule = None
        if self._bucket_ring is not None:
            self._bucket_ring.close()
        if self._replicas is not None:
            self._replicas.close()
        if self._copy_thread is not None:
            self._copy_thread.close()
        self._transport.close()
        while not self._closed:
            self._handle(self._next_event())
        if self._gathering is not None:
            dropped = self._gathering.close()
            # A replica may be lost after the last sum.
            self._handle_all()
            self._log.record_dropped(dropped)

    def complete_log(self) -> None:
        """Complete the log. Training and prefill must have ended."""
        self._record_prefills()
        if self._device is not None:
            self._log.record_device(self._device.record())
        if self._swapping is not None and (swapped := self._swapping()) is not None:
            self._log.record_swapping(swapped)
        self._log.complete()

    def _begin_iteration(self) -> Schedule:
        config, groups = self._config, self._groups
        self._compute.begin(self._iteration)
        schedule = create_schedule(config.schedule, config.shape, config.schedule_options)
        self._schedule = schedule = schedule if groups is None else group_by_group(groups, config.shape.microbatches)
        self._virtual = schedule.virtual if schedule.shape.virtual_stages > 1 else None
        for message, payload in self._early.pop(self._iteration, ()):
            self._arrived(schedule, message, payload)
        return schedule

    def _run_iteration(self, schedule: Schedule) -> None:
        stage = self._config.stage
        while not schedule.complete(stage):
            self._handle_all()
            action = schedule.next(stage)
            if action is None:
                self._handle(self._next_event())
                continue
            start_ns, end_ns = self._perform(schedule, action)
            schedule.finished(stage, action)
            if (sends := schedule.sends(stage, action)) is not None:
                self._pass_on(schedule, action, *sends)
            span = Span(action.kind.value, self._iteration, action.microbatch, start_ns, end_ns)
            self._computed.append(span._replace(virtual_stage=self._virtual_stage(action.chunk)))

    def _pass_on(self, schedule: Schedule, action: Action, to_stage: int, message: Message) -> None:
        """Send what ``action`` has computed, or hand it over to another virtual stage of this rank."""
        stage, virtual = self._config.stage, schedule.virtual
        if abs(virtual.number(to_stage, message.chunk) - virtual.number(stage, action.chunk)) != 1:
            raise ScheduleError(f"the schedule sends to stage {to_stage}, no neighbour of stage {stage}")
        own = Message(message.kind, message.microbatch, action.chunk)
        if to_stage != stage:
            self._send(own)
            return
        if self._passes_payloads:
            made = self._compute.outgoing(own)
            payload = self._transport.take(made.nbytes)
            payload[:] = made
            self._compute.sent(own)
            self._compute.arrived(message, payload)
        schedule.arrived(stage, message)

    def _virtual_stage(self, chunk: int) -> int | None:
        return None if self._virtual is None else self._virtual.number(self._config.stage, chunk)

    def _perform(self, schedule: Schedule, action: Action) -> tuple[int, int]:
        """Compute an action. The last one to compute gradients completes buckets, which are summed meanwhile."""
        ring, in_buckets = self._bucket_ring, self._in_buckets
        if ring is None or in_buckets is None or not schedule.completes_gradients(self._config.stage, action):
            return self._compute.perform(action)
        self._unsummed = self._config.links.buckets
        return in_buckets.perform_in_buckets(action, self._unsummed, ring.complete)

    def _send(self, message: Message) -> None:
        self._unsent += 1
        if self._copy_thread is not None:
            self._copy_thread.send(self._iteration, message)
        else:
            self._transport.send(self._iteration, message, self._compute.outgoing(message))
        if not self._config.overlap:
            self._await_sent()

    def _await_sent(self) -> None:
        while self._unsent:
            self._handle(self._next_event())

    def _update(self) -> None:
        """All-reduce the gradients over the replicas, and their norm over all ranks; then run the optimizer."""
        elsewhere = self._all_reduce is not None or self._bucket_ring is not None or self._replicas is not None
        gradients = None if elsewhere else self._compute.gradients()
        if self._bucket_ring is not None:
            self._await_summed()
        if self._all_reduce is not None:
            self._sum_on_device(self._all_reduce)
        if self._ring is not None and gradients is not None:
            start_ns = time.monotonic_ns()
            self._ring.run(
                self._iteration,
                gradients,
                self._element_bytes,
                self._compute.add,
                lambda: self._handle(self._next_event()),
            )
            span = Span("all_reduce", self._iteration, NO_MICROBATCH, start_ns, time.monotonic_ns(), gradients.nbytes)
            self._record(span)
        if self._norm is not None:
            self._record(self._norm.await_all(self._iteration, lambda: self._handle(self._next_event())))
        # The next iteration must not overwrite tensors that are still being sent. Waiting costs no time: no rank ends
        # an iteration before its neighbour stages have the messages that they need for theirs.
        self._await_sent()
        if self._config.gradients is not None and self._iteration == self._config.iterations - 1:
            assert self._save_gradients is not None
            self._save_gradients(Path(self._config.gradients))
        if (updated := self._compute.update()) is not None:
            self._computed.append(Span("optimizer", self._iteration, NO_MICROBATCH, *updated))
        if (loss := self._compute.loss()) is not None:
            self._log.record_loss(self._iteration, loss)

    def _synchronize(self) -> None:
        """Begin the synchronisation of replicas that begins after this iteration, and apply the one that ends here."""
        replicas, iteration = self._replicas, self._iteration
        if replicas is None:
            return
        computed: list[tuple[int, int] | None] = []
        if (begun := replicas.begin(iteration)) is not None:
            self._unsummed += 1
            self._applied_after, encoded = begun
            computed.append(encoded)
        if replicas.applies(iteration):
            self._await_summed()
            computed.append(replicas.apply(self._parts))
        self._computed += [Span("optimizer", iteration, NO_MICROBATCH, *each) for each in computed if each is not None]

    def _admit(self) -> None:
        """Let replicas that have come back begin with the next iteration, as this rank is after this one."""
        star, replicas, following = self._config.links.star, self._replicas, self._iteration + 1
        if not self._joining or following == self._config.iterations:
            return
        assert star is not None
        assert replicas is not None
        assert self._gathering is not None
        if (state := replicas.state(star.state_bytes)) is not None:
            for rank in sorted(self._joining):
                self._gathering.admit(rank, following, replicas.applied, state)
            self._joining.clear()

    def _await_summed(self) -> None:
        while self._unsummed:
            self._handle(self._next_event())

    def _sum_on_device(self, all_reduce: "DeviceAllReduce") -> None:
        start_ns, self._summed = time.monotonic_ns(), False
        size_bytes = all_reduce.start()
        while not self._summed:
            self._handle(self._next_event())
        self._record(Span("all_reduce", self._iteration, NO_MICROBATCH, start_ns, time.monotonic_ns(), size_bytes))

    def _arrived(self, schedule: Schedule, message: Message, payload: memoryview) -> None:
        self._compute.arrived(message, payload)
        schedule.arrived(self._config.stage, message)

    def _next_event(self) -> Event:
        """Wait for the next event and return it. Report the GPU as idle while waiting."""
        if self._gpu is not None:
            self._gpu.idle()
        return self._events.get()

    def _handle_all(self) -> None:
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                return
            self._handle(event)

    def _handle(self, event: Event) -> None:
        match event:
            case Failed(error):
                raise error
            case Closed():
                self._closed = True
            case DeviceSummed():
                self._summed = True
            case SegmentReceived() | SegmentsSent():
                ring = self._norm if self._norm is not None and self._norm.owns(event) else self._ring
                assert ring is not None
                ring.handle(event)
            case BucketSummed():
                self._unsummed -= 1
                self._parts = event.parts
                times_ns = event.start_ns, event.end_ns
                iteration = self._iteration if self._replicas is None else self._applied_after
                self._record(Span("all_reduce", iteration, NO_MICROBATCH, *times_ns, event.size_bytes))
            case Gathered():
                self._log.record_gathered(event.number, event.ranks, event.late)
            case ReplicaJoins():
                self._joining.add(event.peer.rank)
            case ReplicaLost():
                self._joining.discard(event.peer.rank)
                self._log.record_lost(event.peer.rank, time.monotonic_ns() - self._config.epoch_ns)
            case Sent():
                self._unsent -= 1
                self._compute.sent(event.message)
                self._record_transfer("send", event)
            case Received():
                self._record_transfer("receive", event)
                if self._schedule is not None and event.iteration == self._iteration:
                    self._arrived(self._schedule, event.message, event.payload)
                else:
                    self._early.setdefault(event.iteration, []).append((event.message, event.payload))

    def _record_prefills(self) -> None:
        for span in self._gpu.take_spans() if self._gpu is not None else ():
            self._record(Span(PREFILL, span.iteration, NO_MICROBATCH, span.start_ns, span.end_ns, request=span.request))

    def _record_computed(self) -> None:
        """Log the busy times of the device in this iteration, measured by its own clock if it has one."""
        computed, self._computed = self._computed, []
        if self._device is not None:
            busy_ns = self._device.resolve()
            computed = [
                span._replace(start_ns=start_ns, end_ns=end_ns)
                for span, (start_ns, end_ns) in zip(computed, busy_ns, strict=True)
            ]
        for span in computed:
            self._record(span)

    def _record(self, span: Span) -> None:
        epoch_ns = self._config.epoch_ns
        self._log.record(span._replace(start_ns=span.start_ns - epoch_ns, end_ns=span.end_ns - epoch_ns))

    def _record_transfer(self, kind: str, event: Sent | Received) -> None:
        message, moved_bytes, peer = event.message, event.transfer_bytes, event.peer.host
        times_ns = event.start_ns, event.end_ns
        span = Span(kind, event.iteration, message.microbatch, *times_ns, moved_bytes, peer, message.kind.value)
        self._record(span._replace(virtual_stage=self._virtual_stage(message.chunk)))
