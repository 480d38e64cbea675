"""Pipelines of torch stages in one process, driven by hand: what ranks do, without sockets and schedules."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.workloads.changed import changed
from tests.support.workloads.reference_training import Gradients
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.transport.receive_buffers import BufferPool


@dataclass(frozen=True)
class HandDriven:
    """What training gave; ``spans`` counts the spans of each kind. See ``ReferenceTraining``."""

    losses: tuple[float, ...]
    gradients: Gradients
    spans: Counter[ActionKind]


Meanwhile = Callable[[Callable[[], None]], None]


class _Messages:
    """Messages on their way between stages. See ``train_by_hand`` for ``meanwhile``."""

    def __init__(self, meanwhile: Meanwhile | None) -> None:
        self.lent: list[tuple[memoryview, BufferPool]] = []
        self._meanwhile = meanwhile
        self._pools: dict[TorchCompute, BufferPool] = {}
        self._arrivals: dict[tuple[TorchCompute, Message], tuple[Callable[[], None], Callable[[], None]]] = {}

    def send(self, iteration: int, sender: TorchCompute, receiver: TorchCompute, message: Message) -> None:
        content = sender.outgoing(message)
        if receiver not in self._pools:
            self._pools[receiver] = BufferPool()
            self._pools[receiver].prefer(receiver.receive_buffer)
        pool = self._pools[receiver]
        payload = pool.take(content.nbytes)
        payload[:] = content
        self.lent.append((payload, pool))
        if self._meanwhile is None:
            receiver.arrived(message, payload)
        else:
            begin = _once(lambda: receiver.begin_copy(iteration, message, payload))
            self._arrivals[receiver, message] = begin, lambda: receiver.arrived(message, payload)
            self._meanwhile(begin)
        sender.sent(message)

    def receive(self, receiver: TorchCompute, message: Message) -> None:
        if self._meanwhile is not None:
            for each in self._arrivals.pop((receiver, message)):
                each()

    def release(self, payload: memoryview) -> None:
        position = next(index for index, (one, _) in enumerate(self.lent) if one is payload)
        _, pool = self.lent.pop(position)
        payload[:] = b"\xff" * payload.nbytes
        pool.give_back(payload)


def train_by_hand(
    work: TorchWork,
    iterations: int,
    *,
    last_recomputes: bool = False,
    meanwhile: Meanwhile | None = None,
    after_each: Callable[[], None] = lambda: None,
    buckets: int = 0,
) -> HandDriven:
    """Train every stage of every pipeline, each with its own ``work``: the one given, but for stage and pipeline.

    Forwards come first, as in GPipe, and the weight parts of split backwards last. The last stage recomputes only with
    ``last_recomputes``. Every payload that a stage has been given is overwritten as soon as the stage lets it go, and
    must have been let go, once, when the iteration ends.

    With ``meanwhile`` a stage computes all its microbatches before the next stage begins, and its messages are taken
    only then. ``meanwhile`` gets a function for each of them, which is what the transport's thread does when a message
    has arrived; it may call it at any time. It is called anyway before the message is needed. ``after_each`` is called
    after each action. With ``buckets`` the last action to compute gradients hands them over in so many buckets, each of
    which must not change from then on.
    """
    computed = work.computed
    pipelines, stages, microbatches = range(computed.pipelines), range(computed.stages), range(computed.microbatches)
    messages = _Messages(meanwhile)

    def recomputes(stage: int) -> bool:
        return work.recompute and (last_recomputes or stage + 1 < computed.stages)

    computes = [
        [
            TorchCompute(changed(work, pipeline=pipeline, stage=stage, recompute=recomputes(stage)), messages.release)
            for stage in stages
        ]
        for pipeline in pipelines
    ]
    spans: Counter[ActionKind] = Counter()
    gradient_kind = ActionKind.BACKWARD_WEIGHT if work.split_backward else ActionKind.BACKWARD
    gradients_of: Counter[TorchCompute] = Counter()
    handed_over: dict[TorchCompute, list[memoryview]] = {}

    def perform(compute: TorchCompute, kind: ActionKind, microbatch: int) -> None:
        action = Action(kind, microbatch)
        gradients_of[compute] += kind is gradient_kind
        if buckets and kind is gradient_kind and gradients_of[compute] == computed.microbatches:
            start_ns, end_ns = _perform_in_buckets(compute, action, buckets, handed_over)
        else:
            start_ns, end_ns = compute.perform(action)
        assert 0 < start_ns < end_ns
        spans[kind] += 1
        after_each()

    def forward(iteration: int, row: list[TorchCompute], several: list[int]) -> None:
        for stage, compute in enumerate(row):
            for microbatch in several:
                if stage > 0:
                    messages.receive(compute, Message(MessageKind.ACTIVATION, microbatch))
                perform(compute, ActionKind.FORWARD, microbatch)
            for microbatch in several if stage + 1 < computed.stages else ():
                messages.send(iteration, compute, row[stage + 1], Message(MessageKind.ACTIVATION, microbatch))

    def backward(iteration: int, row: list[TorchCompute], several: list[int]) -> None:
        for stage, compute in reversed(list(enumerate(row))):
            for microbatch in several:
                if recomputes(stage):
                    perform(compute, ActionKind.RECOMPUTE, microbatch)
                if stage + 1 < computed.stages:
                    messages.receive(compute, Message(MessageKind.GRADIENT, microbatch))
                kind = ActionKind.BACKWARD_INPUT if work.split_backward else ActionKind.BACKWARD
                perform(compute, kind, microbatch)
            for microbatch in several if stage > 0 else ():
                messages.send(iteration, compute, row[stage - 1], Message(MessageKind.GRADIENT, microbatch))

    losses = []
    gradients: Gradients = {}
    for iteration in range(iterations):
        for row in computes:
            for compute in row:
                compute.begin(iteration)
            together = [[each] for each in microbatches] if meanwhile is None else [list(microbatches)]
            for several in together:
                forward(iteration, row, several)
            for several in together:
                backward(iteration, row, several)
            for microbatch in microbatches if work.split_backward else ():
                for compute in row:
                    perform(compute, ActionKind.BACKWARD_WEIGHT, microbatch)
        for compute in itertools.chain(*computes):
            compute.resolve()
        assert not messages.lent
        for replicas in zip(*computes, strict=True):
            _all_reduce([handed_over[each] if buckets else [each.gradients()] for each in replicas], replicas[0])
        gradients_of.clear()
        gradients = {name: part for compute in computes[0] for name, part in compute.named_gradients().items()}
        for row in computes:
            for compute in row:
                start_ns, end_ns = compute.update()
                assert 0 < start_ns < end_ns
        of_replicas = [loss for row in computes if (loss := row[-1].loss()) is not None]
        losses.append(sum(of_replicas) / len(of_replicas))
    return HandDriven(tuple(losses), gradients, spans)


def _perform_in_buckets(
    compute: TorchCompute, action: Action, buckets: int, handed_over: dict[TorchCompute, list[memoryview]]
) -> tuple[int, int]:
    payloads: list[memoryview] = []
    contents: list[bytes] = []

    def complete(payload: Callable[[], memoryview]) -> None:
        payloads.append(payload())
        contents.append(bytes(payloads[-1]))

    interval = compute.perform_in_buckets(action, buckets, complete)
    assert len(payloads) == buckets
    assert [bytes(payload) for payload in payloads] == contents
    handed_over[compute] = payloads
    return interval


def _all_reduce(buffers: Sequence[Sequence[memoryview | None]], first: TorchCompute) -> None:
    for total, *others in zip(*buffers, strict=True):
        if total is None:
            assert not others
            continue
        for buffer in others:
            assert buffer is not None
            first.add(total, buffer)
        for buffer in others:
            assert buffer is not None
            buffer[:] = total


def _once(work: Callable[[], None]) -> Callable[[], None]:
    """Return a function that does ``work`` when it is called first, and then nothing."""
    left = [work]
    return lambda: left.pop()() if left else None
