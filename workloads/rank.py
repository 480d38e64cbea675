"""One rank: ``python -m workloads.rank CONFIG.json`` runs one stage of one pipeline on one GPU.

A rank asks its schedule for the next action, computes it, exchanges activations and gradients with the neighbour
stages, and all-reduces its gradients with the other replicas of its stage. All ranks begin at the same instant. After
that there is no barrier: an iteration begins as soon as the schedule and the data allow. The exit status is 0 if all
iterations are done and every peer has shut down; otherwise 1, with one line on stderr, at every rank within 10 s of the
fault.
"""

import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from results.records.span_log import NO_MICROBATCH, PREFILL, Span, SpanLog, SpanLogHeader
from workloads.compute.backends.backend import Computation, RankContext, create_backend
from workloads.compute.device.copy_thread import CopyThread
from workloads.compute.timer_slack import wake_precisely
from workloads.message import Message
from workloads.parent_process import die_with_parent
from workloads.rank_config import RankConfig, read_rank_config
from workloads.schedules.schedule import Schedule, ScheduleError, create_schedule
from workloads.serving.gpu.gpu_worker import GpuWorker, WorkerThread
from workloads.serving.gpu.serving_gpu import serving_gpu
from workloads.serving.gpu.shared_gpu import SharedGpu
from workloads.start_gate import wait_at_gate
from workloads.transport.event import Closed, DeviceSummed, Event, Failed, Received, SegmentReceived, SegmentsSent, Sent
from workloads.transport.frames.buffer_pool import BufferPool
from workloads.transport.peer import TransportError
from workloads.transport.rendezvous import Identity, Rendezvous
from workloads.transport.ring.ring import RingAllReduce
from workloads.transport.striped_transport import StripedTransport

if TYPE_CHECKING:
    from workloads.collective.device_all_reduce import DeviceAllReduce


class Rank:
    """The rank's loop. Construct it when the connections are established and the transport runs.

    ``gpu``: the GPU that ``computation`` shares, which is notified when the rank waits for messages; None if it shares
    none. ``all_reduce`` sums the gradients on the device, instead of the ring over the transport; None for the ring.
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
        self._ring = RingAllReduce(config.links, transport) if config.links.ring else None
        self._element_bytes = computation.element_bytes
        self._log = SpanLog(
            Path(config.span_log),
            SpanLogHeader(config.rank, config.host, config.datacenter, config.gpu, config.pipeline, config.stage),
        )
        self._computed: list[Span] = []
        self._copy_thread: CopyThread | None = None
        if device is not None and device.overlaps_copies:
            self._copy_thread = CopyThread(compute.outgoing, transport.send, lambda fault: events.put(Failed(fault)))
        self._early: dict[int, list[tuple[Message, memoryview]]] = {}
        self._iteration = 0
        self._schedule: Schedule | None = None
        self._unsent = 0
        self._closed = False

    def run(self) -> None:
        """Run every iteration, then shut the transport down.

        Raise TransportError or ScheduleError. Spans of earlier iterations are in the log even then.
        """
        for iteration in range(self._config.iterations):
            self._iteration = iteration
            self._run_iteration(self._begin_iteration())
            self._update()
            self._record_computed()
            self._record_prefills()
            self._log.flush()
        self._schedule = None
        if self._copy_thread is not None:
            self._copy_thread.close()
        self._transport.close()
        while not self._closed:
            self._handle(self._next_event())

    def complete_log(self) -> None:
        """Complete the log. Training and prefill must have ended."""
        self._record_prefills()
        if self._device is not None:
            self._log.record_device(self._device.record())
        self._log.complete()

    def _begin_iteration(self) -> Schedule:
        config = self._config
        self._compute.begin(self._iteration)
        self._schedule = schedule = create_schedule(config.schedule, config.shape, config.schedule_options)
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
            start_ns, end_ns = self._compute.perform(action)
            schedule.finished(stage, action)
            if (sends := schedule.sends(stage, action)) is not None:
                to_stage, message = sends
                if abs(to_stage - stage) != 1:
                    raise ScheduleError(f"the schedule sends to stage {to_stage}, no neighbour of stage {stage}")
                self._send(message)
            self._computed.append(Span(action.kind.value, self._iteration, action.microbatch, start_ns, end_ns))

    def _send(self, message: Message) -> None:
        self._unsent += 1
        if self._copy_thread is not None:
            self._copy_thread.send(self._iteration, message)
        else:
            self._transport.send(self._iteration, message, self._compute.outgoing(message))

    def _update(self) -> None:
        """All-reduce the gradients over the replicas, then run the optimizer."""
        gradients = self._compute.gradients() if self._all_reduce is None else None
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
        # The next iteration must not overwrite tensors that are still being sent. Waiting costs no time: no rank ends
        # an iteration before its neighbour stages have the messages that they need for theirs.
        while self._unsent:
            self._handle(self._next_event())
        if self._config.gradients is not None and self._iteration == self._config.iterations - 1:
            assert self._save_gradients is not None
            self._save_gradients(Path(self._config.gradients))
        if (updated := self._compute.update()) is not None:
            self._computed.append(Span("optimizer", self._iteration, NO_MICROBATCH, *updated))
        if (loss := self._compute.loss()) is not None:
            self._log.record_loss(self._iteration, loss)

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
                assert self._ring is not None
                self._ring.handle(event)
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
        self._record(Span(kind, event.iteration, message.microbatch, *times_ns, moved_bytes, peer, message.kind.value))


def run_rank(config: RankConfig) -> None:
    """Run the rank of ``config`` in this process. Raise the error that ends it, one line with the cause."""
    if config.parent_pid is not None:
        die_with_parent(config.parent_pid)
    wake_precisely()
    if config.epoch_ns > time.monotonic_ns():
        raise ValueError("epoch_ns: lies in the future, take CLOCK_MONOTONIC before the rank is started")
    # Created again for each iteration. Here too, so that an invalid schedule is reported before any rank connects.
    schedule = create_schedule(config.schedule, config.shape, config.schedule_options)
    pool = BufferPool()
    failure = _Failure()
    gpu = None if config.serving is None else serving_gpu(config.serving)
    backend = create_backend(config.compute.backend, config.compute.options)
    computation = backend.create(config.compute, RankContext(schedule.kinds(config.stage), failure.check, pool, gpu))
    create_all_reduce = _all_reduce_factory(config, computation)
    identity = Identity(bytes.fromhex(config.run_token), config.rank, config.listen_address, config.listen_port)
    rendezvous = Rendezvous(
        identity,
        config.links.peers,
        config.congestion,
        lambda note: _print_line(_prefix(config), note),
        config.links.window_bytes,
    )
    worker = None if gpu is None else _make_worker(config, gpu)
    sockets = rendezvous.rendezvous(config.rendezvous_timeout_ns)
    events: SimpleQueue[Event] = SimpleQueue()

    def report(event: Event) -> None:
        # The main thread may compute for long. Buffers that it does not read would accumulate until it is done.
        if not computation.reads_payloads and isinstance(event, Received):
            pool.give_back(event.payload)
        elif computation.begin_copy is not None and isinstance(event, Received):
            computation.begin_copy(event.iteration, event.message, event.payload)
        events.put(event)

    transport = StripedTransport(config.links, sockets, pool, report, blank=not computation.reads_payloads)
    failure.transport = transport
    transport.start()
    all_reduce = None if create_all_reduce is None else create_all_reduce(events.put)
    rank = Rank(config, transport, events, computation, gpu=gpu, all_reduce=all_reduce)
    if config.start_gate is not None:
        wait_at_gate(Path(config.start_gate))
    if worker is not None:
        worker.start()
    rank.run()
    if worker is not None:
        worker.stop()
    rank.complete_log()
    if all_reduce is not None:
        all_reduce.close()


def _make_worker(config: RankConfig, gpu: SharedGpu) -> WorkerThread:
    assert config.serving is not None
    return WorkerThread(
        GpuWorker(config.serving, config.run_token, gpu, lambda note: _print_line(_prefix(config), note))
    )


class _Failure:
    """Passes a failure of the connections to a computation, which is created before they are established."""

    transport: StripedTransport | None = None

    def check(self) -> None:
        """Raise the error of the transport if it has failed."""
        if self.transport is not None:
            self.transport.raise_if_failed()


def _all_reduce_factory(
    config: RankConfig, computation: Computation
) -> "Callable[[Callable[[Event], None]], DeviceAllReduce] | None":
    """Return a function that creates the configured collective from a report function; None if there is none.

    Raise ValueError, before any rank connects, for a collective that this torch does not have.
    """
    collective = config.collective
    if collective is None:
        return None
    # Imported here, because a rank that replays starts in tens of milliseconds only without torch.
    from workloads.collective.device_all_reduce import DeviceAllReduce, check_backend  # noqa: PLC0415

    check_backend(collective.backend)
    gradients, device = computation.device_gradients, computation.device
    assert gradients is not None
    assert device is not None
    return lambda report: DeviceAllReduce(collective, gradients, device.record().device, report)


def main(arguments: list[str]) -> int:
    """Run the rank configured by the file named on the command line. Return the exit status."""
    if len(arguments) != 1:
        _print_line("wanbed rank", "usage: python -m workloads.rank CONFIG.json")
        return 1
    prefix = "wanbed rank"
    try:
        config = read_rank_config(Path(arguments[0]))
        prefix = _prefix(config)
        run_rank(config)
    except (TransportError, ScheduleError, ValueError, OSError, RuntimeError) as failure:
        _print_line(prefix, str(failure))
        return 1
    except Exception as defect:
        traceback.print_exc()
        _print_line(prefix, f"{type(defect).__name__}: {defect}")
        return 1
    return 0


def _prefix(config: RankConfig) -> str:
    return f"wanbed rank {config.rank} ({config.host})"


def _print_line(prefix: str, line: str) -> None:
    print(f"{prefix}: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    if status:
        # A thread of torch may be waiting for a lost peer. A normal exit would wait for that thread.
        os._exit(status)
