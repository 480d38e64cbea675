"""Training on a GPU that does whatever CUDA allows gives the bits that the CPU gives."""

import threading
from dataclasses import replace
from functools import cache
from queue import SimpleQueue

import pytest
import torch

from tests.support.workloads.changed import changed
from tests.support.workloads.hostile_gpu.gpu import HostileGpu
from tests.support.workloads.hostile_gpu.on_hostile_gpu import EACH_ORDER, EACH_SEED, on_hostile_gpu
from tests.support.workloads.hostile_gpu.streams import Order
from tests.support.workloads.one_thread import one_thread
from tests.support.workloads.reference_training import relative_error
from tests.workloads.compute.hand_driven import HandDriven
from tests.workloads.compute.hostile.programs import WORK, WORKS, staging, training
from wanbed.workloads.compute.activation_wire import ActivationWire, EncodedBoundaries
from wanbed.workloads.compute.device.device_measurement import EventTimer
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.synchronization.synchronization import WireFormat

PATIENCE_S = 60
INT8 = EncodedBoundaries(ActivationWire(WireFormat.INT8), (0,))
TOPK = EncodedBoundaries(ActivationWire(WireFormat.BF16, 100, error_feedback=True), (0,))


_one_thread = pytest.fixture(autouse=True)(one_thread)


@cache
def on_the_cpu(work: TorchWork) -> HandDriven:
    return training(changed(work, device=TrainingDevice("cpu")), None, overlaps=False)


def assert_same_bits(found: HandDriven, expected: HandDriven) -> None:
    assert found.losses == expected.losses
    assert relative_error(found.gradients, expected.gradients) == 0


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize(("order", "seed"), EACH_ORDER)
def test_two_pipelines_train_bit_by_bit_as_on_the_cpu(order: Order, seed: int, overlaps: bool) -> None:
    for work in WORKS:
        with on_hostile_gpu(order, seed) as gpu:
            found = training(work, gpu, overlaps=overlaps)
        assert_same_bits(found, on_the_cpu(work))


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "bf16"},
        {"stages": 1, "recompute": False},
        {"stages": 1, "recompute": True, "split_backward": False},
        {"pipelines": 1, "microbatches": 3},
        {"recompute": False},
        {"split_backward": False},
        {"encoded": INT8},
        {"encoded": TOPK, "split_backward": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("order", [Order.LAZY, pytest.param(Order.RANDOM, marks=pytest.mark.soak)])
def test_every_path_of_an_iteration_trains_as_on_the_cpu(changes: dict[str, object], order: Order) -> None:
    work = changed(WORK, **changes)
    with on_hostile_gpu(order) as gpu:
        found = training(work, gpu, overlaps=True)
    assert_same_bits(found, on_the_cpu(work))


@pytest.mark.parametrize(("order", "seed"), EACH_ORDER)
def test_gradients_that_are_handed_over_in_buckets_are_those_of_the_cpu(order: Order, seed: int) -> None:
    for work in WORKS:
        with on_hostile_gpu(order, seed) as gpu:
            found = training(work, gpu, overlaps=True, buckets=3)
        assert_same_bits(found, on_the_cpu(work))


@pytest.mark.parametrize(("order", "seed"), EACH_ORDER)
def test_messages_and_sums_are_staged_right_without_any_wait_for_kernels(order: Order, seed: int) -> None:
    for program in range(6):
        expected = staging(None, program)
        with on_hostile_gpu(order, seed) as gpu:
            assert staging(gpu, program) == expected


def middle_stage() -> TorchCompute:
    work = changed(WORK, model=replace(WORK.learning.model, layers=3), stages=3, stage=1, pipelines=1)
    return TorchCompute(work, lambda payload: None)


def message_bytes(seed: int) -> torch.Tensor:
    config = WORK.learning.model
    return torch.randn(config.context * config.hidden, generator=torch.Generator().manual_seed(seed))


def forwards_and_backwards(compute: TorchCompute, take: object, rounds: int) -> list[bytes]:
    """Run iterations of a middle stage. ``take`` returns the next payload, in the order of need."""
    sent = []
    for iteration in range(rounds):
        compute.begin(iteration)
        for microbatch in range(WORK.computed.microbatches):
            for kind, needs, sends in (
                (ActionKind.FORWARD, MessageKind.ACTIVATION, MessageKind.ACTIVATION),
                (ActionKind.RECOMPUTE, None, None),
                (ActionKind.BACKWARD_INPUT, MessageKind.GRADIENT, MessageKind.GRADIENT),
                (ActionKind.BACKWARD_WEIGHT, None, None),
            ):
                if needs is not None:
                    compute.arrived(Message(needs, microbatch), take())  # type: ignore[operator]
                compute.perform(Action(kind, microbatch))
                if sends is not None:
                    sent.append(bytes(compute.outgoing(Message(sends, microbatch))))
                    compute.sent(Message(sends, microbatch))
        compute.update()
        compute.resolve()
    return sent


@pytest.mark.parametrize("seed", EACH_SEED)
def test_the_transports_thread_may_begin_copies_while_the_stage_computes(seed: int) -> None:
    rounds = 3
    messages = [
        (iteration, Message(kind, microbatch))
        for iteration in range(rounds)
        for microbatch in range(WORK.computed.microbatches)
        for kind in (MessageKind.ACTIVATION, MessageKind.GRADIENT)
    ]
    arriving = iter(range(len(messages)))
    expected = forwards_and_backwards(
        middle_stage_on_cpu(), lambda: memoryview(bytearray(message_bytes(next(arriving)).numpy())), rounds
    )
    with on_hostile_gpu(Order.RANDOM, seed):
        compute = middle_stage()
        arrived: SimpleQueue[memoryview] = SimpleQueue()

        def transport() -> None:
            for number, (iteration, message) in enumerate(messages):
                content = message_bytes(number)
                payload = compute.receive_buffer(content.nbytes)
                assert payload is not None
                payload[:] = memoryview(content.numpy()).cast("B")
                compute.begin_copy(iteration, message, payload)
                arrived.put(payload)

        thread = threading.Thread(target=transport)
        thread.start()
        found = forwards_and_backwards(compute, lambda: arrived.get(timeout=PATIENCE_S), rounds)
        thread.join(PATIENCE_S)
    assert found == expected


def middle_stage_on_cpu() -> TorchCompute:
    work = changed(
        WORK, model=replace(WORK.learning.model, layers=3), stages=3, stage=1, pipelines=1, device=TrainingDevice("cpu")
    )
    return TorchCompute(work, lambda payload: None)


@pytest.fixture
def waits_within_spans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The waits of the host between the two events of spans, of the GPU that the test is on."""
    waits: list[str] = []
    timed = EventTimer.timed

    def watched(timer: EventTimer, work: object) -> tuple[int, int]:
        gpu = timer._clock._runtime
        assert isinstance(gpu, HostileGpu)

        def counted() -> None:
            before = len(gpu.waits)
            work()  # type: ignore[operator]
            waits.extend(gpu.waits[before:])

        return timed(timer, counted)

    monkeypatch.setattr(EventTimer, "timed", watched)
    return waits


@pytest.mark.parametrize(
    "work", [*WORKS, changed(WORK, encoded=TOPK)], ids=["split and recomputed", "whole", "encoded"]
)
def test_the_host_waits_for_nothing_within_a_span(work: TorchWork, waits_within_spans: list[str]) -> None:
    with on_hostile_gpu() as gpu:
        training(work, gpu, overlaps=True)
    assert waits_within_spans == []
    assert gpu.waits.count("value") == 0


@pytest.mark.parametrize("encoded", [None, INT8])
def test_pinned_memory_is_made_ahead_for_all_messages_of_an_iteration(encoded: EncodedBoundaries | None) -> None:
    work = changed(WORK, pipelines=1, encoded=encoded)
    with on_hostile_gpu() as gpu:
        training(work, gpu, overlaps=True)
    # Two stages with one neighbour each; two iterations.
    assert gpu.waits.count("pinned") == 2 * 2 * work.computed.microbatches


def test_a_message_is_copied_to_the_gpu_while_an_action_computes() -> None:
    with on_hostile_gpu(Order.COPIES_FIRST) as gpu:
        compute = middle_stage()
        compute.begin(0)
        for microbatch in range(2):
            payload = compute.receive_buffer(WORK.learning.model.activation_bytes("fp32"))
            assert payload is not None
            if microbatch == 0:
                compute.arrived(Message(MessageKind.ACTIVATION, 0), payload)
        copied: list[int] = []

        def arrives() -> None:
            gpu.meanwhile = lambda: None
            compute.begin_copy(0, Message(MessageKind.ACTIVATION, 1), payload)
            gpu.event().passed()
            assert gpu.computing
            copied.extend(gpu.copied_bytes)

        gpu.meanwhile = arrives
        compute.perform(Action(ActionKind.FORWARD, 0))
    assert copied == [payload.nbytes] * 2
