"""Buckets are complete in order, each as soon as all gradients in it are final."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tests.support.workloads.changed import changed
from tests.support.workloads.one_thread import one_thread
from tests.support.workloads.reference_training import ReferenceTraining, relative_error, train_reference
from tests.workloads.compute.hand_driven import train_by_hand
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.compute.torch_compute import GradientBuckets, TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.gpt_stage import build_stage, language_loss
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.gpt.tokens import TokenSource
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind


def parameters(*sizes: int) -> tuple[list[nn.Parameter], dict[nn.Parameter, tuple[int, int]]]:
    """Parameters of these sizes, and the elements of each in the flat gradients."""
    found = [nn.Parameter(torch.ones(size)) for size in sizes]
    parts, start = {}, 0
    for parameter in found:
        parts[parameter] = start, start + parameter.numel()
        start += parameter.numel()
    return found, parts


def test_a_bucket_waits_for_every_gradient_in_it_and_for_the_buckets_before_it() -> None:
    (first, second, third), parts = parameters(4, 4, 4)
    complete: list[tuple[int, int]] = []
    buckets = GradientBuckets(parts, [(6, 12), (3, 6), (0, 3)], lambda start, end: complete.append((start, end)))
    buckets.final(first)
    assert complete == []
    buckets.final(third)
    assert complete == []
    buckets.final(second)
    assert complete == [(6, 12), (3, 6), (0, 3)]


def test_a_backward_completes_the_last_layers_before_it_has_reached_the_first() -> None:
    layers = nn.Sequential(*(nn.Linear(3, 3, bias=False) for _ in range(3)))
    parts = {parameter: (9 * number, 9 * number + 9) for number, parameter in enumerate(layers.parameters())}
    seen: list[list[bool]] = []

    def complete(_: int, __: int) -> None:
        seen.append([parameter.grad is not None for parameter in layers.parameters()])

    buckets = GradientBuckets(parts, [(18, 27), (9, 18), (0, 9)], complete)
    with buckets.hooked():
        layers(torch.ones(3)).sum().backward()  # type: ignore[no-untyped-call]
    assert seen == [[False, False, True], [False, True, True], [True, True, True]]


def test_what_has_been_deferred_is_not_final() -> None:
    (first, _), parts = parameters(2, 2)
    complete: list[tuple[int, int]] = []
    buckets = GradientBuckets(parts, [(2, 4), (0, 2)], lambda start, end: complete.append((start, end)))
    deferred: list[Tensor] = [first]
    buckets.final_but(deferred)
    assert complete == [(2, 4)]
    buckets.final(first)
    assert complete == [(2, 4), (0, 2)]


_one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)

TINY = GptConfig(layers=4, hidden=64, context=32, heads=4, vocabulary=256)

SMALL = GptConfig(layers=4, hidden=32, context=16, heads=4, vocabulary=64)

ITERATIONS = 3

WORK = TorchWork(
    ComputedStage(stages=4, stage=0, pipelines=2, pipeline=0, microbatches=3),
    LearningConfig(SMALL, 1e-3, "fp32", seed=3),
    TrainingDevice("cpu"),
)

ACTIVATION = Message(MessageKind.ACTIVATION, 0)

GRADIENT = Message(MessageKind.GRADIENT, 0)


def never(payload: memoryview) -> None:
    raise AssertionError("nothing has been given to this stage")


def payload_of(work: TorchWork, seed: int) -> memoryview:
    model = work.learning.model
    size = model.context * model.hidden
    return memoryview(bytearray(np.random.default_rng(seed).standard_normal(size, dtype=np.float32)))


def middle_stage(release: Callable[[memoryview], None] = never, **changes: object) -> TorchCompute:
    compute = TorchCompute(changed(WORK, stage=1, **changes), release)
    compute.begin(0)
    return compute


@pytest.fixture(scope="module")
def reference() -> ReferenceTraining:
    return train_reference(
        TINY, pipelines=2, microbatches=3, iterations=ITERATIONS, seed=3, learning_rate=WORK.learning.learning_rate
    )


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize(("recompute", "split_backward"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_cut_model_is_trained_as_the_whole_is_in_one_process(
    stages: int, recompute: bool, split_backward: bool, reference: ReferenceTraining
) -> None:
    work = changed(WORK, model=TINY, stages=stages, recompute=recompute, split_backward=split_backward)
    found = train_by_hand(work, ITERATIONS)
    assert found.losses == pytest.approx(reference.losses, rel=1e-6)
    assert relative_error(found.gradients, reference.gradients) <= 1e-5
    each = 2 * 3 * ITERATIONS
    assert found.spans[ActionKind.RECOMPUTE] == (each * (stages - 1) if recompute else 0)
    assert found.spans[ActionKind.BACKWARD_WEIGHT] == (each * stages if split_backward else 0)


@pytest.mark.parametrize("split_backward", [False, True])
@pytest.mark.parametrize("cut", [(1, 3), (2, 1, 1)])
def test_a_model_that_is_cut_unevenly_is_trained_as_the_whole_is(
    cut: tuple[int, ...], split_backward: bool, reference: ReferenceTraining
) -> None:
    work = changed(WORK, model=replace(TINY, cut=cut), stages=len(cut), split_backward=split_backward)
    found = train_by_hand(work, ITERATIONS)
    assert found.losses == pytest.approx(reference.losses, rel=1e-6)
    assert relative_error(found.gradients, reference.gradients) <= 1e-5


@pytest.mark.parametrize("buckets", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    ("stages", "recompute", "split_backward"), [(1, False, False), (2, True, False), (2, True, True)]
)
def test_gradients_that_are_handed_over_in_buckets_are_the_same_bits(
    stages: int, recompute: bool, split_backward: bool, buckets: int
) -> None:
    work = changed(WORK, stages=stages, recompute=recompute, split_backward=split_backward)
    whole, found = train_by_hand(work, 2), train_by_hand(work, 2, buckets=buckets)
    assert found.losses == whole.losses
    assert relative_error(found.gradients, whole.gradients) == 0


def test_gradients_are_those_of_the_mean_over_the_batch_as_a_whole() -> None:
    found = train_by_hand(WORK, 1)
    tokens, model = TokenSource(SMALL, 3), build_stage(SMALL, 0, 1, 3, torch.float32)
    places = [(pipeline, microbatch) for pipeline in range(2) for microbatch in range(3)]
    inputs, targets = zip(*(tokens.batch(0, *place) for place in places), strict=True)
    loss = language_loss(model(torch.cat(inputs)), torch.cat(targets))
    loss.backward()
    assert found.losses == (pytest.approx(loss.item(), rel=1e-6),)
    expected = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    assert relative_error(found.gradients, expected) <= 1e-5


def test_training_lowers_the_loss() -> None:
    losses = train_by_hand(changed(WORK, stages=2, pipelines=1, microbatches=8, learning_rate=1e-2), 50).losses
    assert losses[0] == pytest.approx(np.log(64), rel=0.02)
    # Each token is one of 8, evenly: no model gets below log 8 but by chance.
    assert np.log(8) < losses[-1] < 3


def test_the_last_stage_may_recompute_as_well() -> None:
    work = changed(WORK, recompute=True)
    with_last, without = (train_by_hand(work, 2, last_recomputes=last) for last in (True, False))
    assert with_last.spans[ActionKind.RECOMPUTE] > without.spans[ActionKind.RECOMPUTE]
    assert with_last.losses == without.losses
    assert relative_error(with_last.gradients, without.gradients) == 0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_same_inputs_give_the_same_bits(precision: str) -> None:
    work = changed(WORK, precision=precision, recompute=True, split_backward=True)
    one, other = train_by_hand(work, 3), train_by_hand(work, 3)
    assert one.losses == other.losses
    assert relative_error(one.gradients, other.gradients) == 0


def test_bf16_follows_fp32_as_closely_as_it_can() -> None:
    exact, rounded = (train_by_hand(changed(WORK, precision=precision), ITERATIONS) for precision in ("fp32", "bf16"))
    # bf16 has 8 bits of precision: a rounding is off by up to 0.4 %, and losses average over many.
    assert rounded.losses == pytest.approx(exact.losses, rel=1e-3)
    assert rounded.losses != exact.losses
    assert relative_error(rounded.gradients, exact.gradients) < 0.1


def test_a_text_is_what_is_trained_on(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"a rose is a rose is a rose " * 20)
    text = str(tmp_path / "text")
    found = train_by_hand(changed(WORK, text=text), 2)
    expected = train_reference(SMALL, pipelines=2, microbatches=3, iterations=2, seed=3, learning_rate=1e-3, text=text)
    assert found.losses == pytest.approx(expected.losses, rel=1e-6)


def test_split_or_whole_a_backward_takes_the_same_operations() -> None:
    def operations(kinds: list[ActionKind]) -> list[int]:
        compute = middle_stage(lambda payload: None, split_backward=len(kinds) == 3)
        compute.arrived(ACTIVATION, payload_of(WORK, 1))
        counts = []
        for kind in kinds:
            if kind in (ActionKind.BACKWARD, ActionKind.BACKWARD_INPUT):
                compute.arrived(GRADIENT, payload_of(WORK, 2))
            in_place = {torch.ops.aten.addmm_: lambda _, a, b, **__: 2 * a[0] * a[1] * b[1]}
            with FlopCounterMode(display=False, custom_mapping=in_place) as counter:
                compute.perform(Action(kind, 0))
            counts.append(counter.get_total_flops())
        return counts

    forward, backward = operations([ActionKind.FORWARD, ActionKind.BACKWARD])
    split_forward, for_input, for_weight = operations(
        [ActionKind.FORWARD, ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT]
    )
    # The CPU's fused attention is not counted, so what is left is the linear layers: twice as much backwards.
    assert split_forward == forward > 0
    assert for_input == for_weight == forward
    assert backward == for_input + for_weight


def test_a_stage_computes_in_the_very_memory_of_what_arrived_and_what_it_sends() -> None:
    compute = middle_stage(lambda payload: None)
    payload = payload_of(WORK, 1)
    compute.arrived(ACTIVATION, payload)
    compute.perform(Action(ActionKind.FORWARD, 0))
    first, second = compute.outgoing(ACTIVATION), compute.outgoing(ACTIVATION)
    assert first.nbytes == payload.nbytes == SMALL.activation_bytes("fp32")
    assert np.shares_memory(np.asarray(first), np.asarray(second))


def test_tensors_being_sent_do_not_change() -> None:
    compute = middle_stage(lambda payload: None)
    for microbatch in range(3):
        compute.arrived(Message(MessageKind.ACTIVATION, microbatch), payload_of(WORK, microbatch))
    compute.perform(Action(ActionKind.FORWARD, 0))
    sending = compute.outgoing(ACTIVATION)
    activation = bytes(sending)
    compute.arrived(GRADIENT, payload_of(WORK, 9))
    compute.perform(Action(ActionKind.BACKWARD, 0))
    gradient = bytes(compute.outgoing(GRADIENT))
    for microbatch in (1, 2):
        compute.perform(Action(ActionKind.FORWARD, microbatch))
    compute.update()
    compute.begin(1)
    assert bytes(sending) == bytes(compute.outgoing(ACTIVATION)) == activation
    assert bytes(compute.outgoing(GRADIENT)) == gradient


@pytest.mark.parametrize("split_backward", [False, True])
def test_payloads_are_released_after_their_last_use(split_backward: bool) -> None:
    let_go: list[memoryview] = []
    compute = middle_stage(let_go.append, recompute=True, split_backward=split_backward)
    activation, gradient = payload_of(WORK, 1), payload_of(WORK, 2)
    compute.arrived(ACTIVATION, activation)
    compute.perform(Action(ActionKind.FORWARD, 0))
    compute.perform(Action(ActionKind.RECOMPUTE, 0))
    compute.arrived(GRADIENT, gradient)
    assert let_go == []
    if split_backward:
        compute.perform(Action(ActionKind.BACKWARD_INPUT, 0))
        assert [payload is activation for payload in let_go] == [True]
        compute.perform(Action(ActionKind.BACKWARD_WEIGHT, 0))
    else:
        compute.perform(Action(ActionKind.BACKWARD, 0))
    assert [payload is activation for payload in let_go] == [True, False]
    assert let_go[1] is gradient


def test_a_part_of_a_backward_needs_work_that_splits_them() -> None:
    with pytest.raises(ValueError, match=r"^split_backward: is false, .* backward_weight of microbatch 0$"):
        middle_stage().perform(Action(ActionKind.BACKWARD_WEIGHT, 0))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_parts_of_gradients_are_added_in_place_by_element(precision: str) -> None:
    compute = middle_stage(precision=precision)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    one, other = (torch.randn(1000, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in (1, 2))
    total, part = (memoryview(bytearray(x.view(torch.uint8).numpy())) for x in (one, other))
    middle = slice(100 * dtype.itemsize, 900 * dtype.itemsize)
    compute.add(total[middle], part[middle])
    compute.add(total[:0], part[:0])
    expected = one.clone()
    expected[100:900] += other[100:900]
    assert bytes(total) == bytes(expected.view(torch.uint8).numpy())


def test_gradients_are_one_buffer_of_the_stages_size_and_zero_when_an_iteration_begins() -> None:
    compute = middle_stage(lambda payload: None)
    gradients = compute.gradients()
    assert gradients is not None
    assert gradients.nbytes == SMALL.gradient_bytes(1, 4, "fp32")
    compute.arrived(ACTIVATION, payload_of(WORK, 1))
    compute.arrived(GRADIENT, payload_of(WORK, 2))
    compute.perform(Action(ActionKind.FORWARD, 0))
    compute.perform(Action(ActionKind.BACKWARD, 0))
    assert any(gradients)
    compute.begin(1)
    assert not any(gradients)


def test_a_lone_pipeline_has_nothing_to_sum() -> None:
    assert middle_stage(pipelines=1).gradients() is None


def test_the_loss_is_known_at_the_last_stage_after_the_last_forward() -> None:
    compute = TorchCompute(changed(WORK, stages=1, microbatches=2), never)
    for iteration in range(2):
        compute.begin(iteration)
        compute.perform(Action(ActionKind.FORWARD, 1))
        assert compute.loss() is None
        compute.perform(Action(ActionKind.FORWARD, 0))
        # The mean of this pipeline's own sequences, however many pipelines there are.
        assert compute.loss() == pytest.approx(np.log(64), rel=0.02)
    assert middle_stage().loss() is None


def test_torch_computes_with_as_many_threads_as_it_is_reported() -> None:
    middle_stage(threads=2)
    assert torch.get_num_threads() == 2
    middle_stage()
    assert torch.get_num_threads() == 1


class Sharing:
    """A GPU that others have too, and what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def claim(self) -> None:
        self.told.append(("claim",))

    def began(self, start_ns: int, iteration: int, kind: str, microbatch: int) -> None:
        self.told.append(("began", iteration, kind, microbatch))
        self.began_ns = start_ns

    def ended(self, end_ns: int) -> None:
        self.told.append(("ended", end_ns))


def test_a_gpu_that_is_shared_is_claimed_for_each_action_and_for_the_update() -> None:
    gpu = Sharing()
    compute = TorchCompute(changed(WORK, stages=1, stage=0, pipelines=1, pipeline=0), never, gpu)
    compute.begin(4)
    spans = [compute.perform(Action(ActionKind.FORWARD, 1)), compute.update()]
    for (start_ns, end_ns), named in zip(spans, (("forward", 1), ("optimizer", -1)), strict=True):
        assert gpu.told[:3] == [("claim",), ("began", 4, *named), ("ended", end_ns)]
        assert start_ns < end_ns
        del gpu.told[:3]
    assert gpu.told == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="shows what happens on a machine without a GPU")
def test_a_gpu_that_is_not_there_is_reported() -> None:
    with pytest.raises(ValueError, match=r"^device: torch sees no GPU here, take cpu or auto$"):
        middle_stage(device=TrainingDevice("cuda"))
