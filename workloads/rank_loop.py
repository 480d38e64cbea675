"""The loop of one rank: ask its schedule, compute, exchange messages, sum gradients, and log what it did."""

import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from wanbed.results.records.span_log import NO_MICROBATCH, PREFILL, Span, SpanLog
from wanbed.workloads.compute.backends.backend import Computation
from wanbed.workloads.kept_files import KeptFiles
from wanbed.workloads.message import Message
from wanbed.workloads.rank_config import RankConfig
from wanbed.workloads.replica_sums import Gatherer, GradientNorm, ReplicaSums
from wanbed.workloads.schedules.action import Action
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.flushes import Flushes
from wanbed.workloads.schedules.group_by_group import group_by_group
from wanbed.workloads.schedules.pipeline_shape import VirtualStages
from wanbed.workloads.schedules.schedule import Schedule, ScheduleError
from wanbed.workloads.serving.shared_gpu import SharedGpu
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
from wanbed.workloads.transport.striped_transport import StripedTransport

Fetch = Callable[[Message], memoryview]

Send = Callable[[int, Message, memoryview], None]


class CopyThread:
    """A thread that calls ``fetch``, which waits for the copy, and then ``send``, for each message in order.

    If either raises, the error is passed to ``report``, and nothing more is sent.
    """

    def __init__(self, fetch: Fetch, send: Send, report: Callable[[Exception], None]) -> None:
        self._fetch = fetch
        self._send = send
        self._report = report
        self._messages: SimpleQueue[tuple[int, Message] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="copy thread", daemon=True)
        self._thread.start()

    def send(self, iteration: int, message: Message) -> None:
        """Queue a message whose copy has begun."""
        self._messages.put((iteration, message))

    def close(self) -> None:
        """Send the queued messages and end the thread. May be called again."""
        self._messages.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (entry := self._messages.get()) is not None:
            iteration, message = entry
            try:
                self._send(iteration, message, self._fetch(message))
            except Exception as fault:
                # No other code sees an error of this thread, and the rank would wait for the message for ever.
                self._report(fault)
                return


class Rank:
    """The rank's loop. Construct it when the connections are established and the transport runs.

    ``sums`` are those with the other replicas of its stage. Where they have a thread of their own, the events of ring
    or star go there and not into ``events``. ``gpu``: the GPU that ``computation`` shares, which is notified when the
    rank waits for messages; None if it shares none. ``gatherer`` is None at any rank that gathers no star. ``joined``
    is what a rank begins with that joins a training under way, None for one that begins with the others.
    """

    def __init__(
        self,
        config: RankConfig,
        transport: StripedTransport,
        events: "SimpleQueue[Event]",
        computation: Computation,
        sums: ReplicaSums,
        *,
        gpu: SharedGpu | None = None,
        gatherer: Gatherer | None = None,
        joined: StateReceived | None = None,
    ) -> None:
        self._config = config
        self._gpu = gpu
        model = computation.model
        self._device = device = None if model is None else model.device
        self._transport = transport
        self._events = events
        self._compute = compute = computation.compute
        self._sums = sums
        self._kept: KeptFiles | None = None
        if model is not None:
            self._kept = KeptFiles(
                config.kept,
                model.files,
                pipeline=config.place.pipeline,
                stage=config.place.stage,
                iterations=config.iterations,
            )
        self._norm: GradientNorm | None = None
        if config.links.rings.norm is not None:
            self._norm = GradientNorm(config.links, transport, None if model is None else model.squares)
        self._gatherer = gatherer
        self._joining: set[int] = set()
        self._joined = joined
        self._log = SpanLog(Path(config.process.span_log), config.place)
        self._computed: list[Span] = []
        self._copy_thread: CopyThread | None = None
        if device is not None and device.overlaps_copies:
            self._copy_thread = CopyThread(compute.outgoing, transport.send, lambda fault: events.put(Failed(fault)))
        self._early: dict[int, list[tuple[Message, memoryview]]] = {}
        self._iteration = 0
        self._asked: tuple[int, Message] | None = None
        self._swapped = None if model is None else model.swapped
        # What a group passes on to another stays on the device.
        self._passes_payloads = computation.reads_payloads and self._swapped is None
        self._virtual: VirtualStages | None = None
        self._schedule: Schedule | None = None
        self._unsent = 0
        self._closed = False

    def run(self) -> None:
        """Run every iteration, then shut the transport down.

        Raise TransportError or ScheduleError. Spans of earlier iterations are in the log even then.
        """
        first = self._config.links.first_iteration
        if self._joined is not None:
            first = self._joined.iteration
            self._log.record_joined(first, time.monotonic_ns() - self._config.process.epoch_ns)
        for iteration in range(first, self._config.iterations):
            self._iteration = iteration
            self._run_iteration(self._begin_iteration())
            self._update()
            computed = self._sums.synchronize(iteration, self._handle_next)
            self._computed += [Span("optimizer", iteration, NO_MICROBATCH, *interval) for interval in computed]
            self._admit()
            if self._kept is not None:
                self._kept.finished(iteration)
            self._record_computed()
            self._record_prefills()
            self._log.flush()
        self._schedule = None
        if self._copy_thread is not None:
            self._copy_thread.close()
        self._transport.close()
        while not self._closed:
            self._handle_next()
        if self._gatherer is not None:
            dropped = self._gatherer.gathering.close()
            # A replica may be lost after the last sum.
            self._handle_all()
            self._log.record_dropped(dropped)

    def complete_log(self) -> None:
        """Complete the log. Training and prefill must have ended."""
        self._record_prefills()
        if self._device is not None:
            self._log.record_device(self._device.record())
        if self._swapped is not None and (swapped := self._swapped.record()) is not None:
            self._log.record_swapping(swapped)
        self._log.complete()

    def _begin_iteration(self) -> Schedule:
        config, swapped = self._config, self._swapped
        self._compute.begin(self._iteration)
        schedule = config.schedule.create()
        if swapped is not None:
            schedule = group_by_group(swapped.count, config.shape.microbatches)
        self._schedule = schedule
        self._virtual = schedule.virtual if schedule.shape.virtual_stages > 1 else None
        for message, payload in self._early.pop(self._iteration, ()):
            self._arrived(schedule, message, payload)
        return schedule

    def _run_iteration(self, schedule: Schedule) -> None:
        stage = self._config.place.stage
        while not schedule.complete(stage):
            self._handle_all()
            action = schedule.next(stage)
            if action is None and self._sum_flush(schedule):
                continue
            if action is None:
                self._ask(schedule)
                self._handle_next()
                continue
            start_ns, end_ns = self._sums.perform(action, schedule, stage)
            schedule.finished(stage, action)
            if self._config.overlap:
                # Before the message of this action, behind which the request would wait on the connection.
                self._ask(schedule)
            if (sends := schedule.sends(stage, action)) is not None:
                self._pass_on(schedule, action, *sends)
            span = Span(action.kind.value, self._iteration, action.microbatch, start_ns, end_ns)
            self._computed.append(span._replace(virtual_stage=self._virtual_stage(action.chunk)))

    def _sum_flush(self, schedule: Schedule) -> bool:
        """Sum the gradients of the flush that has ended, if one waits for it. Return whether one did."""
        stage = self._config.place.stage
        if not isinstance(schedule, Flushes) or (flush := schedule.ended_flush(stage)) is None:
            return False
        if (summed := self._sums.sum_flush(self._iteration, flush, self._handle_next)) is not None:
            self._record(summed)
        schedule.begin_flush(stage)
        return True

    def _ask(self, schedule: Schedule) -> None:
        """Ask for the message that the schedule waits for, once, where receives block."""
        if not self._config.links.on_request:
            return
        if not isinstance(schedule, FixedOrder | Flushes):
            raise ScheduleError(f"{type(schedule).__name__} has no fixed order, which says what a rank waits for")
        awaited = schedule.awaited(self._config.place.stage)
        if awaited is not None and self._asked != (self._iteration, awaited[1]):
            self._asked = self._iteration, awaited[1]
            self._transport.request(*self._asked)

    def _pass_on(self, schedule: Schedule, action: Action, to_stage: int, message: Message) -> None:
        """Send what ``action`` has computed, or hand it over to another virtual stage of this rank."""
        stage, virtual = self._config.place.stage, schedule.virtual
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
        return None if self._virtual is None else self._virtual.number(self._config.place.stage, chunk)

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
            self._handle_next()

    def _update(self) -> None:
        """All-reduce the gradients over the replicas, and their norm over all ranks; then run the optimizer."""
        if (summed := self._sums.sum_gradients(self._iteration, self._handle_next)) is not None:
            self._record(summed)
        if self._norm is not None:
            self._record(self._norm.await_all(self._iteration, self._handle_next))
        # The next iteration must not overwrite tensors that are still being sent. Waiting costs no time: no rank ends
        # an iteration before its neighbour stages have the messages that they need for theirs.
        self._await_sent()
        if self._kept is not None:
            self._kept.summed(self._iteration)
        if (updated := self._compute.update()) is not None:
            self._computed.append(Span("optimizer", self._iteration, NO_MICROBATCH, *updated))
        if (loss := self._compute.loss()) is not None:
            self._log.record_loss(self._iteration, loss)

    def _admit(self) -> None:
        """Let replicas that have come back begin with the next iteration, as this rank is after this one."""
        following = self._iteration + 1
        if self._gatherer is None or not self._joining or following == self._config.iterations:
            return
        if self._gatherer.admit(self._joining, following):
            self._joining.clear()

    def _arrived(self, schedule: Schedule, message: Message, payload: memoryview) -> None:
        self._compute.arrived(message, payload)
        schedule.arrived(self._config.place.stage, message)

    def _next_event(self) -> Event:
        """Wait for the next event and return it. Report the GPU as idle while waiting."""
        if self._gpu is not None:
            self._gpu.idle()
        return self._events.get()

    def _handle_next(self) -> None:
        self._handle(self._next_event())

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
            case SegmentReceived() | SegmentsSent() if self._norm is not None and self._norm.owns(event):
                self._norm.handle(event)
            case BucketSummed() | DeviceSummed() | SegmentReceived() | SegmentsSent():
                if (span := self._sums.handle(event, self._iteration)) is not None:
                    self._record(span)
            case Gathered():
                self._log.record_gathered(event.number, event.ranks, event.late)
            case ReplicaJoins():
                self._joining.add(event.peer.rank)
            case ReplicaLost():
                self._joining.discard(event.peer.rank)
                self._log.record_lost(event.peer.rank, time.monotonic_ns() - self._config.process.epoch_ns)
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
        self._log.record(self._config.process.since_epoch(span))

    def _record_transfer(self, kind: str, event: Sent | Received) -> None:
        message, moved_bytes, peer = event.message, event.transfer_bytes, event.peer.host
        times_ns = event.start_ns, event.end_ns
        span = Span(kind, event.iteration, message.microbatch, *times_ns, moved_bytes, peer, message.kind.value)
        self._record(span._replace(virtual_stage=self._virtual_stage(message.chunk)))
