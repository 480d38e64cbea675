"""Simulate training as discrete events: every rank of some pipelines, iteration after iteration.

Each rank behaves like ``wanbed.workloads.rank``. It asks its schedule for an action whenever its GPU becomes idle or a
message arrives, computes, and sends the result. At the end of an iteration it all-reduces its gradients with the other
replicas of its stage, waits until everything that it sent has left, runs the optimizer, and begins the next iteration
without a barrier. Where optimizer steps wait for all stages, it takes part in the all-reduce of the gradient norm
before that. Where sends block, it also waits after each of them, and where they block until arrival, a send's span has
the latency too. Where receives block, a transfer begins once the
sender knows that the receiver's next action waits for it.

Times are integer nanoseconds. All events of one instant are handled first, in the order in which they were added. Then
the schedules of all affected ranks are asked, in order of rank. So the same input gives the same spans.

``SharedTraining`` leaves its GPUs to another user while they are idle. Trainings of several jobs share events and
network.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import index
from typing import Any, Final

from wanbed.flow.event_queue import Event, EventQueue, Handler
from wanbed.flow.number_rows import NumberRows
from wanbed.ground.errors import SimulationError
from wanbed.ground.own_code import OWN_FAULTS, described
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.simulator.action_table import KINDS, ActionTable, Shipping, StageRun, action_table
from wanbed.runner.simulator.channels.transfers import Delivery, Transfers
from wanbed.runner.simulator.deadlock import deadlock, event_text
from wanbed.runner.simulator.event_run import let_signals_in
from wanbed.runner.simulator.rings.ring_all_reduce import BucketSum
from wanbed.runner.simulator.simulated_ranks import NUMBERS, RankState, culprit_of, simulated_ranks
from wanbed.runner.simulator.simulated_spans import WorkNumbers
from wanbed.runner.simulator.simulation import KIND_CODES, NO_PEER
from wanbed.runner.simulator.surroundings import GpuSharing, Surroundings
from wanbed.runner.trainings.local_updates.simulation import Synchronizations
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.flushes import iteration_schedule
from wanbed.workloads.schedules.schedule import Schedule, ScheduleError, load_schedule
from wanbed.workloads.transport.links_config import NORM_BYTES
from wanbed.workloads.transport.requests import Requests

PULSE_INSTANTS: Final = 1000
"""A pulse follows so many simulated instants, which is about ten times a second."""

Pulse = Callable[[float], None]
"""Is told from time to time which share of a simulation is done, at most 1. It ends the simulation by raising."""

OPTIMIZER_KIND = "optimizer"
NO_MICROBATCH: Final = -1
_SEND: Final = KIND_CODES["send"]
_RECEIVE: Final = KIND_CODES["receive"]
_ALL_REDUCE: Final = KIND_CODES["all_reduce"]
_NORM: Final = KIND_CODES["norm"]
_OPTIMIZER: Final = KIND_CODES["optimizer"]
_ACTIVATION: Final = MessageKind.ACTIVATION
_GRADIENT: Final = MessageKind.GRADIENT
_ACTION_CODES: Final = {kind: KIND_CODES[kind.value] for kind in ActionKind}
_KIND_NUMBERS: Final = {kind: number for number, kind in enumerate(ActionKind)}
_NO_SLOT: Final = -1
_BATCH: Final = 512 * NUMBERS
_TOLD: Final = 5
"""So many of the last events are told of a deadlock."""


class _Ended(Event):
    """The end, at ``at_ns``, of an action that began at ``start_ns``."""

    __slots__ = ("action", "at_ns", "rank", "start_ns", "training")

    def __init__(self, training: "Training", rank: RankState, action: Action, start_ns: int, end_ns: int) -> None:
        self.turn = 0
        self.following = None
        self.training = training
        self.rank = rank
        self.action = action
        self.start_ns = start_ns
        self.at_ns = end_ns

    def happen(self, now_ns: int) -> None:
        """Let the rank go on."""
        self.training.finish(now_ns, self)

    def __str__(self) -> str:
        """Return what has happened."""
        return event_text(self.at_ns, (self.rank.pipeline, self.rank.stage), self.action)


class _Sent(Delivery):
    """A message of an iteration on its way from ``sender`` to ``rank``, where it arrives at ``at_ns``.

    Its spans have the numbers ``sent`` and ``received``. ``slot`` is its place in the receiver's ``StageRun``, if that
    has one.
    """

    __slots__ = (
        "at_ns",
        "iteration",
        "message",
        "microbatch",
        "rank",
        "received",
        "sender",
        "sent",
        "size_bytes",
        "slot",
        "training",
    )

    def __init__(
        self,
        training: "Training",
        sender: RankState,
        rank: RankState,
        message: Message,
        slot: int,
        *,
        microbatch: int = 0,
        sent: int = 0,
        received: int = 0,
        size_bytes: int = 0,
        is_awaited: bool = False,
    ) -> None:
        self.turn = 0
        self.following = None
        self.is_awaited = is_awaited
        self.training = training
        self.sender = sender
        self.rank = rank
        self.iteration = sender.iteration
        self.message = message
        self.slot = slot
        self.microbatch = microbatch
        self.sent = sent
        self.received = received
        self.size_bytes = size_bytes
        self.at_ns = 0

    def known(self, first_left_ns: int, last_left_ns: int, first_arrival_ns: int, last_arrival_ns: int) -> None:
        """Let it arrive."""
        self.training.has_sent(self, first_left_ns, last_left_ns, first_arrival_ns, last_arrival_ns)

    def released(self, left_ns: int) -> None:
        """Let its sender go on."""
        self.training.has_left(self.sender, left_ns)

    def happen(self, now_ns: int) -> None:
        """Tell the rank that it has arrived."""
        self.training.arrive(self)

    def __str__(self) -> str:
        """Return what has happened."""
        return event_text(self.at_ns, (self.rank.pipeline, self.rank.stage), self.message)


class Training:
    """Simulates some pipelines of a variant, which wait for each other only in the all-reduces of their gradients.

    With a norm they do in the all-reduce of the gradient norm too, and so do all stages. ``pipelines`` has their
    numbers in the variant. ``events`` has the events of training alone.
    """

    def __init__(
        self,
        variant: PipelineVariant,
        pipelines: Sequence[int],
        iterations: int,
        events: EventQueue,
        surroundings: Surroundings,
    ) -> None:
        self._variant = variant
        self._iterations = iterations
        self._events = events
        self._transfers = surroundings.transfers
        self._rings = rings = surroundings.rings
        self._norm = surroundings.norm
        self._stages = stages = variant.placement.stages
        self._layout = variant.layout
        self._chunks: int = self._layout.chunks
        self._receives_block: bool = variant.receives_block
        self._sends_block: bool = variant.sends_block
        self._holds_until_arrival: bool = variant.holds_until_arrival
        self._flushes: int = variant.shape.flushes
        self._sums_flushes: bool = variant.shape.sums_flushes
        self._sizes_bytes: list[int] = list(variant.work.activation_bytes)
        self._numbers = WorkNumbers.of(variant)
        self._schedule_class = load_schedule(variant.schedule)
        self._schedules: dict[tuple[int, int], Schedule] = {}
        self._tables: dict[int, ActionTable | None] = {}
        self._table_of = [self._table(pipeline) for pipeline in pipelines]
        self._later: dict[tuple[int, int], StageRun] = {}
        self._ranks = simulated_ranks(variant, pipelines, rings)
        for rank in self._ranks:
            rank.ways = self._ways(rank)
        self._first = {pipeline: position * stages for position, pipeline in enumerate(pipelines)}
        self._pending: list[RankState] = []
        self._training = len(self._ranks)
        self._numbers_at_end = 0
        self._last: list[Event | None] = [None] * _TOLD
        self._happened = 0
        self.rows = NumberRows(_BATCH)
        """Eight numbers for each span: rank, kind's code, iteration, microbatch, start, end, size and peer's rank.

        Times are in nanoseconds, sizes in bytes. With virtual stages the microbatch is a number of ``WorkNumbers``.
        """
        self._requests = Requests()
        self._synchronizations = Synchronizations(variant, iterations, events, rings, self.rows)
        self._synchronizes_early: bool = self._synchronizations.begin_beside_backward
        # Called before a rank begins another iteration, unless a synchronisation of its is under way.
        self.advanced: Callable[[int, RankState], None] | None = None

    def begin(self) -> None:
        """Begin the first iteration of every rank."""
        for rank in self._ranks:
            self._begin(rank)

    def kill(self, number: int) -> RankState:
        """End a rank, which sends no messages to others of its pipeline. Return what it did."""
        rank = self._ranks[number]
        self._training -= not rank.done
        rank.lost = rank.done = True
        self._synchronizations.forget(rank)
        return rank

    def begin_again(self, killed: RankState, iteration: int) -> None:
        """Let a rank that was killed begin with that iteration."""
        self._schedules = {key: each for key, each in self._schedules.items() if key[0] != killed.pipeline}
        first = self._first[killed.pipeline]
        numbers = range(first, first + self._stages)
        self._later = {key: each for key, each in self._later.items() if key[0] not in numbers}
        again = killed.begun_again(iteration)
        self._ranks[again.number], self._training = again, self._training + 1
        self._begin(again)

    @property
    def is_pending(self) -> bool:
        """Tell whether schedules are to be asked at this instant."""
        return bool(self._pending)

    @property
    def is_training(self) -> bool:
        """Tell whether any rank has an iteration left."""
        return self._training > 0

    def start_pending(self) -> None:
        """Ask the schedules of the ranks that something has happened to, in order of rank."""
        pending, self._pending = self._pending, []
        before, is_sorted = -1, True
        for each in pending:
            each.is_pending = False
            is_sorted = is_sorted and each.number >= before
            before = each.number
        if not is_sorted:
            pending.sort(key=_number)
        before = -1
        for each in pending:
            # One that was killed has another in its place.
            if each.number != before:
                before = each.number
                self._start_next(self._ranks[before])

    def _ask_soon(self, rank: RankState) -> None:
        """Let a rank be asked at the end of this instant."""
        if not rank.is_pending:
            rank.is_pending = True
            self._pending.append(rank)

    def _note(self, happened: Event) -> None:
        """Remember what has happened in case of a deadlock."""
        self._last[self._happened % _TOLD] = happened
        self._happened += 1

    def check_done(self) -> None:
        """Raise DeadlockError if a rank has not done all of its iterations."""
        stuck = next((rank for rank in self._ranks if not rank.done), None)
        if stuck is not None:
            for rank in self._ranks:
                table = self._table_of[rank.number // self._stages]
                if rank.run is not None and table is not None:
                    rank.schedule = self._schedule(rank.pipeline, rank.iteration)
                    table.replay(rank.schedule, rank.stage, rank.run)
            culprit = culprit_of(self._ranks) or stuck
            schedule = self._schedule(culprit.pipeline, culprit.iteration)
            after = self._happened % _TOLD
            events = [str(each) for each in self._last[after:] + self._last[:after] if each is not None]
            raise deadlock(culprit.pipeline, culprit.stage, schedule, events)

    def share_done(self) -> float:
        """Return which share of all spans there is, at most 1."""
        self._numbers_at_end = self._numbers_at_end or self._most_numbers()
        return min(len(self.rows) / self._numbers_at_end, 1.0)

    def _most_numbers(self) -> int:
        """Return the length of ``rows`` at the end, about: all-reduces and optimizer steps are not counted."""
        pipelines, boundaries = len(self._ranks) // self._stages, self._layout.count - 1
        kinds = sum(map(self._actions, self._first))
        # Over a boundary a microbatch's activation and gradient are sent and received.
        spans = kinds * self._layout.chunks + pipelines * boundaries * 4
        return max(spans * self._variant.microbatches * self._iterations * NUMBERS, 1)

    def _actions(self, pipeline: int) -> int:
        """Return how many kinds of actions all stages of a pipeline have together."""
        table = self._table_of[self._first[pipeline] // self._stages]
        if table is not None:
            return table.actions
        schedule: Any = self._schedule(pipeline, 0)
        return sum(len(schedule.kinds(stage)) for stage in range(self._stages))

    def next_instant(self) -> bool:
        """Handle the next instant. Return False if training has no event."""
        return self._events.handle_next_instant()

    def _table(self, pipeline: int) -> ActionTable | None:
        """Return the actions of a pipeline, None if its schedule is asked."""
        if self._receives_block or self._flushes > 1:
            return None
        variant = self._variant
        mate = 0 if variant.plan is None else pipeline % variant.pipelines_per_cell
        if mate not in self._tables:
            self._tables[mate] = action_table(self._schedule_class, variant.shape, variant.schedule_options(pipeline))
        return self._tables[mate]

    def _ways(self, rank: RankState) -> list[Transfers | None]:
        """Return the transfers of what a rank sends."""
        found: list[Transfers | None] = []
        for chunk in range(self._chunks):
            virtual = self._number(rank.stage, chunk)
            found += [self._transfers.get((rank.pipeline, virtual, kind)) for kind in (_ACTIVATION, _GRADIENT)]
        return found

    def _schedule(self, pipeline: int, iteration: int) -> Schedule:
        schedule = self._schedules.get((pipeline, iteration))
        if schedule is None:
            try:
                make = partial(self._schedule_class, **self._variant.schedule_options(pipeline))
                schedule = iteration_schedule(self._variant.shape, make)
            except OWN_FAULTS as fault:
                raise self._fault(fault) from fault
            self._schedules[pipeline, iteration] = schedule
        return schedule

    def _fault(self, fault: BaseException) -> SimulationError:
        """Return the one-line error for an exception that a schedule has raised."""
        what = str(fault) if isinstance(fault, ScheduleError) else described(fault, self._schedule_class)
        return SimulationError(f"{self._schedule_class.__name__} fails: {what}")

    def _begin(self, rank: RankState) -> None:
        table = self._table_of[rank.number // self._stages]
        if table is None:
            rank.schedule = self._schedule(rank.pipeline, rank.iteration)
        else:
            rank.run = self._later.pop((rank.number, rank.iteration), None) or table.run(rank.stage)
        self._ask_soon(rank)

    def _start_next(self, rank: RankState) -> None:
        run = rank.run
        if run is None:
            self._ask_next(rank)
            return
        if not rank.busy and not rank.held:
            step = run.step
            if step is None:
                rank.run = None
                self._complete(rank)
            elif step.needs < 0 or run.there[step.needs]:
                rank.busy = True
                self._begin_action(self._events.now_ns, rank, step.action)
                return
        self._leave_idle(rank)

    def _ask_next(self, rank: RankState) -> None:
        """Ask the schedule of a rank that has no table."""
        schedule = rank.schedule
        if schedule is None or rank.busy or rank.held:
            self._leave_idle(rank)
            return
        try:
            action = schedule.next(rank.stage)
            complete = action is None and schedule.complete(rank.stage)
        except OWN_FAULTS as fault:
            raise self._fault(fault) from fault
        if action is not None:
            rank.busy = True
            self._begin_action(self._events.now_ns, rank, action)
            return
        if complete:
            rank.schedule = None
            self._complete(rank)
        elif self._sums_flushes and (flush := schedule.ended_flush(rank.stage)) is not None:
            self._sum_flush(rank, flush)
        elif self._receives_block:
            self._ask(rank, schedule)
        self._leave_idle(rank)

    def _ask(self, rank: RankState, schedule: Any) -> None:
        """Tell the sender of the message that the rank has come to that it waits for it."""
        awaited = schedule.awaited(rank.stage)
        if awaited is None or rank.asked == (rank.iteration, awaited[1]):
            return
        message = awaited[1]
        rank.asked = rank.iteration, message
        key, events = (rank.number, rank.iteration, message), self._events

        def known(at_ns: int) -> None:
            events.at(max(at_ns, events.now_ns), self._asked, key)

        back = _GRADIENT if message.kind is _ACTIVATION else _ACTIVATION
        virtual = self._layout.number(rank.stage, message.chunk)
        self._transfers[rank.pipeline, virtual, back].request(events.now_ns, rank.mate, known)

    def _asked(self, _: int, key: tuple[int, int, Message]) -> None:
        self._requests.asked(key)

    def _leave_idle(self, rank: RankState) -> None:
        """Handle that a rank may have nothing to compute for now."""

    def _begin_action(self, now_ns: int, rank: RankState, action: Action) -> None:
        self._compute(now_ns, rank, action)

    def _compute(self, now_ns: int, rank: RankState, action: Action) -> None:
        step = None if rank.run is None else rank.run.step
        cost = action.chunk * KINDS + _KIND_NUMBERS[action.kind] if step is None else step.cost
        usual_ns = rank.costs_ns[cost]
        end_ns = now_ns + usual_ns
        if rank.draws is not None:
            end_ns = now_ns + rank.drawn_ns(action.kind.value, action.microbatch, usual_ns)
        self._events.add(end_ns, _Ended(self, rank, action, now_ns, end_ns))
        if rank.buckets_bytes or self._synchronizes_early:
            completes = rank.schedule.completes_gradients(rank.stage, action) if step is None else step.completes
            if completes and rank.buckets_bytes:
                self._sum_buckets(rank, now_ns, end_ns)
            elif completes:
                self._synchronizations.compute_gradients(rank, now_ns, end_ns)

    def _sum_buckets(self, rank: RankState, start_ns: int, end_ns: int) -> None:
        """All-reduce the gradients while the last backward of this iteration computes them."""
        buckets, iteration = len(rank.buckets_bytes), rank.iteration
        rank.unended = 2

        def join(bucket: int, now_ns: int, done: Callable[[int, int], None]) -> None:
            self._rings.join(rank.stage, iteration * buckets + bucket, rank.pipeline, now_ns, done)

        def summed(bucket: int, begun_ns: int, ended_ns: int) -> None:
            about = (rank.rank, _ALL_REDUCE, iteration, NO_MICROBATCH)
            self.rows.extend((*about, begun_ns, ended_ns, rank.buckets_bytes[bucket], NO_PEER))
            if bucket + 1 == buckets:
                self._events.at(max(ended_ns, self._events.now_ns), self._end_one, rank)

        virtual_stages = self._variant.shape.virtual_stages
        BucketSum(self._events, buckets, join, summed, virtual_stages).begin(start_ns, end_ns)

    def _end_one(self, now_ns: int, rank: RankState) -> None:
        rank.unended -= 1
        if not rank.unended:
            self._gradients_complete(now_ns, rank)

    def finish(self, now_ns: int, ended: _Ended) -> None:
        """Handle that an action has ended."""
        rank = ended.rank
        if rank.lost:
            return
        rank.busy = False
        run = rank.run
        step = None if run is None else run.step
        if run is None or step is None:
            self._tell_finished(now_ns, ended)
            return
        run.step = step.following
        self._note(ended)
        number = rank.numbers[step.chunk] + step.microbatch
        self.rows.add_span(
            rank.rank,
            step.code,
            rank.iteration,
            number,
            start_ns=ended.start_ns,
            end_ns=now_ns,
            size=0,
            peer=NO_PEER,
        )
        ships = step.ships
        if ships is not None:
            self._ship(rank, now_ns, ships)
        self._ask_soon(rank)

    def _ship(self, rank: RankState, now_ns: int, ships: Shipping) -> None:
        """Send the message of a table."""
        receiver = self._ranks[rank.number - rank.stage + ships.to_stage]
        if receiver is rank:
            here = _Sent(self, rank, rank, ships.message, ships.slot)
            here.at_ns = now_ns
            self.arrive(here)
            return
        transfers = rank.ways[ships.way]
        assert transfers is not None
        microbatch = sent = received = ships.microbatch
        if self._numbers is not None:
            kind = ships.message.kind
            sent, received = (self._numbers.base(each, kind) + microbatch for each in (ships.sender, ships.receiver))
        delivery = _Sent(
            self,
            rank,
            receiver,
            ships.message,
            ships.slot,
            microbatch=microbatch,
            sent=sent,
            received=received,
            size_bytes=self._sizes_bytes[min(ships.sender, ships.receiver)],
            is_awaited=self._sends_block,
        )
        self._hold(rank)
        transfers.send(now_ns, rank.mate, microbatch, delivery)

    def _hold(self, rank: RankState) -> None:
        """Handle that a rank sends."""
        if self._sends_block:
            rank.held = True
        else:
            rank.unsent += 1

    def _tell_finished(self, now_ns: int, ended: _Ended) -> None:
        """Tell the schedule of a rank that has no table that an action has ended."""
        rank, action = ended.rank, ended.action
        schedule, stage = rank.schedule, rank.stage
        try:
            schedule.finished(stage, action)
            sends = schedule.sends(stage, action)
        except OWN_FAULTS as fault:
            raise self._fault(fault) from fault
        self._note(ended)
        number = rank.numbers[action.chunk] + action.microbatch
        code = _ACTION_CODES[action.kind]
        self.rows.extend((rank.rank, code, rank.iteration, number, ended.start_ns, now_ns, 0, NO_PEER))
        if self._receives_block and not self._sends_block:
            # Before the message of this action, behind which the request would wait on the connection.
            self._ask(rank, schedule)
        if sends is not None:
            if sends[0] == stage and self._chunks > 1:
                here = _Sent(self, rank, rank, sends[1], _NO_SLOT)
                here.at_ns = now_ns
                self.arrive(here)
            else:
                self._send(rank, now_ns, self._number(stage, action.chunk), *sends)
        self._ask_soon(rank)

    def _number(self, stage: int, chunk: int) -> int:
        """Return the virtual stage that a stage holds as its ``chunk``."""
        return stage if self._chunks == 1 and not chunk else int(self._layout.number(stage, chunk))

    def _send(self, rank: RankState, now_ns: int, sender: int, to_stage: int, message: Message) -> None:
        """Send a message of virtual stage ``sender`` to the neighbour on another stage."""
        virtual = self._number(to_stage, message.chunk)
        if abs(virtual - sender) != 1:
            raise self._fault(ScheduleError(f"it sends to stage {to_stage}, no neighbour of stage {rank.stage}"))
        if message.kind is not (_ACTIVATION if virtual > sender else _GRADIENT):
            raise self._fault(ScheduleError(f"it sends the {message.kind} of stage {rank.stage} to stage {to_stage}"))
        receiver = self._ranks[self._first[rank.pipeline] + to_stage]
        microbatch = sent = received = index(message.microbatch)
        if self._numbers is not None:
            sent, received = (self._numbers.base(each, message.kind) + microbatch for each in (sender, virtual))
        delivery = _Sent(
            self,
            rank,
            receiver,
            message,
            _NO_SLOT,
            microbatch=microbatch,
            sent=sent,
            received=received,
            size_bytes=self._sizes_bytes[min(sender, virtual)],
            is_awaited=self._sends_block,
        )
        self._hold(rank)
        transfers = self._transfers[rank.pipeline, sender, message.kind]
        if not self._receives_block:
            transfers.send(now_ns, rank.mate, microbatch, delivery)
            return

        def begin() -> None:
            transfers.send(self._events.now_ns, rank.mate, microbatch, delivery)

        self._requests.made((receiver.number, rank.iteration, message), begin)

    def has_sent(
        self, sent: _Sent, first_left_ns: int, last_left_ns: int, first_arrival_ns: int, last_arrival_ns: int
    ) -> None:
        """Handle that all times of a message are known."""
        rank, receiver, iteration, size_bytes = sent.sender, sent.rank, sent.iteration, sent.size_bytes
        self.rows.add_span(
            rank.rank,
            _SEND,
            iteration,
            sent.sent,
            start_ns=first_left_ns,
            end_ns=last_arrival_ns if self._holds_until_arrival else last_left_ns,
            size=size_bytes,
            peer=receiver.rank,
        )
        self.rows.add_span(
            receiver.rank,
            _RECEIVE,
            iteration,
            sent.received,
            start_ns=first_arrival_ns,
            end_ns=last_arrival_ns,
            size=size_bytes,
            peer=rank.rank,
        )
        if not sent.is_awaited:
            rank.unsent -= 1
            rank.sent_ns = max(rank.sent_ns, last_left_ns)
        now_ns = self._events.now_ns
        sent.at_ns = at_ns = max(last_arrival_ns, now_ns)
        self._events.add(at_ns, sent)
        if self._holds_until_arrival:
            self._events.at(at_ns, self._release, rank)
        if rank.updates and not rank.unsent:
            self._update(now_ns, rank)

    def has_left(self, rank: RankState, left_ns: int) -> None:
        """Let a rank go on once what it has sent has left, unless it is held until that has arrived."""
        if not self._holds_until_arrival:
            self._events.at(max(left_ns, self._events.now_ns), self._release, rank)

    def _release(self, _: int, rank: RankState) -> None:
        rank.held = False
        self._ask_soon(rank)

    def arrive(self, arrived: _Sent) -> None:
        """Handle that a message has arrived."""
        rank, iteration, slot = arrived.rank, arrived.iteration, arrived.slot
        if slot >= 0:
            run = rank.run
            if run is None or rank.iteration != iteration:
                run = self._run_later(rank, iteration)
            run.there[slot] = 1
        else:
            schedule = rank.schedule
            if schedule is None or rank.iteration != iteration:
                schedule = self._schedule(rank.pipeline, iteration)
            try:
                schedule.arrived(rank.stage, arrived.message)
            except OWN_FAULTS as fault:
                raise self._fault(fault) from fault
        self._note(arrived)
        if rank.iteration == iteration:
            self._ask_soon(rank)

    def _run_later(self, rank: RankState, iteration: int) -> StageRun:
        """Return what a rank has of an iteration that it has not begun."""
        key = rank.number, iteration
        run = self._later.get(key)
        if run is None:
            table = self._table_of[rank.number // self._stages]
            assert table is not None
            run = self._later[key] = table.run(rank.stage)
        return run

    def _sum_flush(self, rank: RankState, flush: int) -> None:
        """All-reduce the gradients of a flush, before the rank begins the next one."""
        if not self._rings.has_gradients(rank.stage):
            self._begin_flush(0, rank)
            return
        rank.held = True
        summed = partial(self._reduced, rank, self._begin_flush)
        number = rank.iteration * self._flushes + flush
        self._rings.join(rank.stage, number, rank.pipeline, self._events.now_ns, summed)

    def _begin_flush(self, _: int, rank: RankState) -> None:
        rank.held = False
        rank.schedule.begin_flush(rank.stage)
        self._ask_soon(rank)

    def _complete(self, rank: RankState) -> None:
        """All-reduce the gradients if necessary, then update, after the rank's last action of this iteration."""
        now_ns = self._events.now_ns
        if rank.buckets_bytes:
            self._end_one(now_ns, rank)
        elif self._variant.sums_every_iteration and self._rings.has_gradients(rank.stage):
            number = rank.iteration
            if self._sums_flushes:
                number = number * self._flushes + self._flushes - 1
            summed = partial(self._reduced, rank, self._gradients_complete)
            self._rings.join(rank.stage, number, rank.pipeline, now_ns, summed)
        else:
            self._gradients_complete(now_ns, rank)

    def _reduced(self, rank: RankState, then: Handler, start_ns: int, end_ns: int) -> None:
        size_bytes = self._variant.work.gradient_bytes[rank.stage]
        about = (rank.rank, _ALL_REDUCE, rank.iteration, NO_MICROBATCH)
        self.rows.extend((*about, start_ns, end_ns, size_bytes, NO_PEER))
        self._events.at(max(end_ns, self._events.now_ns), then, rank)

    def _gradients_complete(self, now_ns: int, rank: RankState) -> None:
        """Update, after the gradient norm if optimizer steps wait for it."""
        if self._norm is None:
            self._update(now_ns, rank)
        else:
            self._norm.join(rank.iteration, rank.rank, now_ns, partial(self._normed, rank))

    def _normed(self, rank: RankState, start_ns: int, end_ns: int) -> None:
        about = (rank.rank, _NORM, rank.iteration, NO_MICROBATCH)
        self.rows.extend((*about, start_ns, end_ns, NORM_BYTES, NO_PEER))
        self._events.at(max(end_ns, self._events.now_ns), self._update, rank)

    def _update(self, now_ns: int, rank: RankState) -> None:
        """Run the optimizer once everything sent has left, then begin the next iteration."""
        rank.updates = rank.unsent > 0
        if rank.updates:
            return
        start_ns = max(now_ns, rank.sent_ns)
        duration_ns = rank.drawn_ns(OPTIMIZER_KIND, NO_MICROBATCH, rank.optimizer_ns)
        if duration_ns:
            self._begin_optimizer(start_ns, rank, duration_ns)
        else:
            self._events.at(start_ns, self._next_iteration, rank)

    def _begin_optimizer(self, start_ns: int, rank: RankState, duration_ns: int) -> None:
        self._events.at(self._optimizer_end_ns(start_ns, rank, duration_ns), self._next_iteration, rank)

    def _optimizer_end_ns(self, start_ns: int, rank: RankState, duration_ns: int) -> int:
        """Add the span of the optimizer. Return its end."""
        end_ns = start_ns + duration_ns
        self.rows.extend((rank.rank, _OPTIMIZER, rank.iteration, NO_MICROBATCH, start_ns, end_ns, 0, NO_PEER))
        return end_ns

    def _next_iteration(self, now_ns: int, rank: RankState) -> None:
        if not rank.lost:
            self._synchronizations.end_iteration(now_ns, rank, self._advance)

    def _advance(self, now_ns: int, rank: RankState) -> None:
        if rank.lost:
            return
        rank.iteration += 1
        if self.advanced is not None and not self._synchronizations.is_under_way(rank):
            self.advanced(now_ns, rank)
        if rank.iteration == self._iterations:
            rank.done = True
            self._training -= 1
        else:
            self._begin(rank)


class SharedTraining(Training):
    """Training on GPUs shared with another user, ``sharing``, whose GPUs have the numbers of ranks.

    At one instant its events are handled after those of training.
    """

    def __init__(
        self,
        variant: PipelineVariant,
        pipelines: Sequence[int],
        iterations: int,
        events: EventQueue,
        surroundings: Surroundings,
        *,
        sharing: GpuSharing,
    ) -> None:
        super().__init__(variant, pipelines, iterations, events, surroundings)
        self._sharing = sharing

    def next_instant(self) -> bool:
        """Handle the next instant of training or the other user. Return False if training has no event."""
        next_ns, shared_ns = self._events.next_ns, self._sharing.next_ns
        if next_ns is not None and shared_ns is not None and shared_ns < next_ns:
            self._sharing.handle_next_instant()
            return True
        return super().next_instant()

    def _leave_idle(self, rank: RankState) -> None:
        if not rank.busy:
            self._sharing.idle(self._events.now_ns, rank.rank)

    def _begin_action(self, now_ns: int, rank: RankState, action: Action) -> None:
        self._when_free(now_ns, rank, self._start, (rank, action))

    def _when_free(self, now_ns: int, rank: RankState, start: Handler, what: Any) -> None:
        """Call ``start`` as soon as the other user has released the GPU."""
        release_ns = self._sharing.wants(now_ns, rank.rank)
        if release_ns > now_ns:
            self._events.at(release_ns, start, what)
        else:
            start(now_ns, what)

    def _start(self, now_ns: int, what: tuple[RankState, Action]) -> None:
        rank, action = what
        self._sharing.started(now_ns, rank.rank, rank.iteration, action.kind.value, action.microbatch)
        self._compute(now_ns, rank, action)

    def finish(self, now_ns: int, ended: _Ended) -> None:
        """Tell the other user, and handle the end as a ``Training`` does."""
        rank, action = ended.rank, ended.action
        if not rank.lost:
            self._sharing.ended(now_ns, rank.rank, rank.iteration, action.kind.value, action.microbatch)
        super().finish(now_ns, ended)

    def _begin_optimizer(self, start_ns: int, rank: RankState, duration_ns: int) -> None:
        self._events.at(start_ns, self._want_optimizer, (rank, duration_ns))

    def _want_optimizer(self, now_ns: int, what: tuple[RankState, int]) -> None:
        rank, _ = what
        rank.busy = True
        self._when_free(now_ns, rank, self._start_optimizer, what)

    def _start_optimizer(self, now_ns: int, what: tuple[RankState, int]) -> None:
        rank, duration_ns = what
        self._sharing.started(now_ns, rank.rank, rank.iteration, OPTIMIZER_KIND, NO_MICROBATCH)
        self._events.at(self._optimizer_end_ns(now_ns, rank, duration_ns), self._end_optimizer, rank)

    def _end_optimizer(self, now_ns: int, rank: RankState) -> None:
        rank.busy = False
        self._sharing.ended(now_ns, rank.rank, rank.iteration, OPTIMIZER_KIND, NO_MICROBATCH)
        self._next_iteration(now_ns, rank)
        self._ask_soon(rank)


def _number(rank: RankState) -> int:
    return rank.number


def run_trainings(first: Training, beside: Sequence[Training] = (), pulse: Pulse | None = None) -> None:
    """Simulate all iterations of the first training and of those ``beside`` it, which have no other user of GPUs.

    At one instant the ranks of the first are asked first. ``pulse`` is called after every ``PULSE_INSTANTS`` instants.
    Raises SimulationError if a schedule fails, DeadlockError if it deadlocks.
    """
    everyone = (first, *beside)
    for each in everyone:
        each.begin()
    instant = 0
    while True:
        while first.is_pending or (beside and any(each.is_pending for each in beside)):
            for each in everyone:
                each.start_pending()
        is_training = first.is_training or (beside and any(each.is_training for each in beside))
        # Events that are left when training is over are outdated ends of transfers whose rates have changed.
        if not is_training or not first.next_instant():
            break
        instant += 1
        if instant % PULSE_INSTANTS == 0:
            let_signals_in()
            if pulse is not None:
                pulse(first.share_done())
    for each in everyone:
        each.check_done()
