"""Stages of several virtual stages, driven by their schedule, train what the whole model in one process does."""

from collections import deque
from collections.abc import Callable

import pytest

from tests.support.workloads.changed import changed
from tests.support.workloads.reference_training import Gradients, ReferenceTraining, relative_error, train_reference
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.message import Message
from wanbed.workloads.schedules.action import Action
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.schedule import Schedule
from wanbed.workloads.schedules.virtual.interleaved import InterleavedOneForwardOneBackward
from wanbed.workloads.schedules.virtual.zero_bubble_v import ZeroBubbleV

TINY = GptConfig(layers=4, hidden=128, context=128, heads=4, vocabulary=256)
STAGES, PIPELINES, MICROBATCHES, ITERATIONS = 2, 2, 4, 3
BUCKETS = 5
WORK = TorchWork(
    ComputedStage(stages=STAGES, stage=0, pipelines=PIPELINES, pipeline=0, microbatches=MICROBATCHES),
    LearningConfig(TINY, 1e-3, "fp32", seed=3),
    TrainingDevice("cpu"),
)


@pytest.fixture(scope="module")
def reference() -> ReferenceTraining:
    return train_reference(
        TINY,
        pipelines=PIPELINES,
        microbatches=MICROBATCHES,
        iterations=ITERATIONS,
        seed=3,
        learning_rate=WORK.learning.learning_rate,
    )


def perform_in_buckets(compute: TorchCompute, action: Action) -> None:
    """Check that the whole gradients are handed over in ``BUCKETS`` parts, each of which does not change any more."""
    parts: list[tuple[memoryview, bytes]] = []

    def complete(payload: Callable[[], memoryview]) -> None:
        parts.append((payload(), bytes(payload())))

    compute.perform_in_buckets(action, BUCKETS, complete)
    assert [bytes(part) for part, _ in parts] == [content for _, content in parts]
    gradients = compute.gradients()
    assert gradients is not None
    assert b"".join(content for _, content in reversed(parts)) == bytes(gradients)


def run_iteration(schedule: Schedule, row: list[TorchCompute], lent: list[memoryview], *, in_buckets: bool) -> None:
    """Let every stage act whenever its schedule has it; messages arrive at once, as copies."""
    moved = True
    waiting: deque[tuple[int, Message, memoryview]] = deque()
    while moved:
        moved = False
        for stage, compute in enumerate(row):
            while (action := schedule.next(stage)) is not None:
                moved = True
                if in_buckets and schedule.completes_gradients(stage, action):
                    perform_in_buckets(compute, action)
                else:
                    compute.perform(action)
                schedule.finished(stage, action)
                if (sends := schedule.sends(stage, action)) is not None:
                    own = Message(sends[1].kind, action.microbatch, action.chunk)
                    waiting.append((*sends, memoryview(bytearray(compute.outgoing(own)))))
                    compute.sent(own)
                while waiting:
                    to_stage, message, payload = waiting.popleft()
                    lent.append(payload)
                    row[to_stage].arrived(message, payload)
                    schedule.arrived(to_stage, message)
    assert all(schedule.complete(stage) for stage in range(len(row)))


def all_reduce(replicas: tuple[TorchCompute, ...]) -> None:
    first, *others = [compute.gradients() for compute in replicas]
    assert first is not None
    for other in others:
        assert other is not None
        replicas[0].add(first, other)
    for other in others:
        assert other is not None
        other[:] = first


@pytest.mark.parametrize(("recompute", "in_buckets"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("kind", [InterleavedOneForwardOneBackward, ZeroBubbleV])
def test_virtual_stages_train_as_the_whole_model_does(
    kind: type[Schedule], recompute: bool, in_buckets: bool, reference: ReferenceTraining
) -> None:
    shape = PipelineShape(STAGES, MICROBATCHES, recompute, virtual_stages=2)
    work = changed(WORK, recompute=recompute, split_backward=kind.splits_backward, virtual=kind(shape).virtual)
    lent: list[memoryview] = []

    def release(payload: memoryview) -> None:
        lent.pop(next(index for index, one in enumerate(lent) if one is payload))
        payload[:] = b"\xff" * payload.nbytes

    computes = [
        [TorchCompute(changed(work, pipeline=pipeline, stage=stage), release) for stage in range(STAGES)]
        for pipeline in range(PIPELINES)
    ]
    losses = []
    gradients: Gradients = {}
    for iteration in range(ITERATIONS):
        for row in computes:
            for compute in row:
                compute.begin(iteration)
            run_iteration(kind(shape), row, lent, in_buckets=in_buckets)
        assert not lent
        for replicas in zip(*computes, strict=True):
            all_reduce(replicas)
        gradients = {name: part for compute in computes[0] for name, part in compute.named_gradients().items()}
        for row in computes:
            for compute in row:
                compute.update()
        of_replicas = [loss for row in computes for compute in row if (loss := compute.loss()) is not None]
        losses.append(sum(of_replicas) / len(of_replicas))
    assert losses == pytest.approx(reference.losses, rel=1e-6)
    assert relative_error(gradients, reference.gradients) <= 1e-5


def test_the_first_stage_of_a_v_has_the_embeddings_and_the_head() -> None:
    virtual = ZeroBubbleV(PipelineShape(STAGES, MICROBATCHES, virtual_stages=2)).virtual
    first, last = (
        set(TorchCompute(changed(WORK, stage=stage, virtual=virtual), lambda _: None).named_gradients())
        for stage in range(STAGES)
    )
    assert {"tokens.weight", "positions.weight", "head.weight", "norm.weight"} <= first
    assert {name.split(".")[1] for name in first if name.startswith("layers.")} == {"0", "3"}
    assert {name.split(".")[1] for name in last} == {"1", "2"}
