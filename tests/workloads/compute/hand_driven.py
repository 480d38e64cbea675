"""Pipelines of torch stages in one process, driven by hand: what ranks do, without sockets and schedules."""

from collections import Counter
from dataclasses import dataclass, replace

from tests.support.workloads.reference_training import Gradients
from workloads.compute.torch_compute import TorchCompute
from workloads.compute.torch_work import TorchWork
from workloads.message import Message, MessageKind
from workloads.schedules.action import Action, ActionKind


@dataclass(frozen=True)
class HandDriven:
    """What training gave; ``spans`` counts the spans of each kind. See ``ReferenceTraining``."""

    losses: tuple[float, ...]
    gradients: Gradients
    spans: Counter[ActionKind]


def train_by_hand(work: TorchWork, iterations: int, *, last_recomputes: bool = False) -> HandDriven:
    """Train every stage of every pipeline, each with its own ``work``: the one given, but for stage and pipeline.

    Forwards come first, as in GPipe, and the weight parts of split backwards last. The last stage recomputes only with
    ``last_recomputes``. Every payload that a stage has been given is overwritten as soon as the stage lets it go, and
    must have been let go, once, when the iteration ends.
    """
    pipelines, stages, microbatches = range(work.pipelines), range(work.stages), range(work.microbatches)
    lent: list[memoryview] = []

    def overwrite(payload: memoryview) -> None:
        position = next(index for index, one in enumerate(lent) if one is payload)
        del lent[position]
        payload[:] = b"\xff" * payload.nbytes

    def recomputes(stage: int) -> bool:
        return work.recompute and (last_recomputes or stage + 1 < work.stages)

    computes = [
        [
            TorchCompute(replace(work, pipeline=pipeline, stage=stage, recompute=recomputes(stage)), overwrite)
            for stage in stages
        ]
        for pipeline in pipelines
    ]
    spans: Counter[ActionKind] = Counter()

    def perform(compute: TorchCompute, kind: ActionKind, microbatch: int) -> None:
        start_ns, end_ns = compute.perform(Action(kind, microbatch))
        assert 0 < start_ns < end_ns
        spans[kind] += 1

    def send(sender: TorchCompute, receiver: TorchCompute, message: Message) -> None:
        payload = memoryview(bytearray(sender.outgoing(message)))
        lent.append(payload)
        receiver.arrived(message, payload)
        sender.sent(message)

    def forward(row: list[TorchCompute], microbatch: int) -> None:
        for stage, compute in enumerate(row):
            perform(compute, ActionKind.FORWARD, microbatch)
            if stage + 1 < work.stages:
                send(compute, row[stage + 1], Message(MessageKind.ACTIVATION, microbatch))

    def backward(row: list[TorchCompute], microbatch: int) -> None:
        for stage, compute in reversed(list(enumerate(row))):
            if recomputes(stage):
                perform(compute, ActionKind.RECOMPUTE, microbatch)
            kind = ActionKind.BACKWARD_INPUT if work.split_backward else ActionKind.BACKWARD
            perform(compute, kind, microbatch)
            if stage > 0:
                send(compute, row[stage - 1], Message(MessageKind.GRADIENT, microbatch))

    losses = []
    gradients: Gradients = {}
    for iteration in range(iterations):
        for row in computes:
            for compute in row:
                compute.begin(iteration)
            for microbatch in microbatches:
                forward(row, microbatch)
            for microbatch in microbatches:
                backward(row, microbatch)
            for microbatch in microbatches if work.split_backward else ():
                for compute in row:
                    perform(compute, ActionKind.BACKWARD_WEIGHT, microbatch)
        assert not lent
        for replicas in zip(*computes, strict=True):
            _all_reduce(replicas)
        gradients = {name: part for compute in computes[0] for name, part in compute.named_gradients().items()}
        for row in computes:
            for compute in row:
                start_ns, end_ns = compute.update()
                assert 0 < start_ns < end_ns
        shares = [row[-1].loss() for row in computes]
        losses.append(sum(share for share in shares if share is not None))
    return HandDriven(tuple(losses), gradients, spans)


def _all_reduce(replicas: tuple[TorchCompute, ...]) -> None:
    buffers = [compute.gradients() for compute in replicas]
    total = buffers[0]
    if total is None:
        assert len(replicas) == 1
        return
    for buffer in buffers[1:]:
        assert buffer is not None
        replicas[0].add(total, buffer)
    for buffer in buffers[1:]:
        buffer[:] = total
