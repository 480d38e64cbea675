"""Real stages on the CPU; that they take time is asserted, never how much."""

import weakref
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from tests.support.workloads.changed import changed
from tests.support.workloads.hostile_gpu.on_hostile_gpu import on_hostile_gpu
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device import device_measurement
from wanbed.workloads.compute.device.device_measurement import EventTimer
from wanbed.workloads.compute.device.torch_device import CpuDevice, as_tensor
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.inference.inference_model import InferenceModel
from wanbed.workloads.inference.inference_stage import InferenceStage
from wanbed.workloads.profiles import device_measurements
from wanbed.workloads.profiles.device_measurements import (
    ProductTimes,
    StageDriver,
    measure_chunk,
    measure_product,
    measure_stage,
)
from wanbed.workloads.profiles.repeats import Pace
from wanbed.workloads.schedules.action import ActionKind


class Counting(CpuDevice):
    """A device on which a product takes as long as ``product_ns`` says, whatever it takes."""

    def __init__(self, product_ns: int) -> None:
        self.product_ns = product_ns

    def timed(self, work):  # type: ignore[no-untyped-def]
        products = []
        original = torch.mm

        def counted(*factors, **options):  # type: ignore[no-untyped-def]
            products.append(factors[0].shape)
            return original(*factors, **options)

        torch.mm = counted
        try:
            work()
        finally:
            torch.mm = original
        assert set(products) == {(16, 16)}
        return 1_000, 1_000 + len(products) * self.product_ns


def test_the_time_is_that_of_one_product_however_many_are_timed_at_once() -> None:
    found = measure_product(Counting(500_000), torch.float32, 16, Pace(7, 0, 5_000_000))
    assert found == ProductTimes(16, (500_000,) * 7)


def test_products_use_the_configured_precision() -> None:
    found = measure_product(CpuDevice(), torch.bfloat16, 8, Pace(7, 0, 0))
    assert found.size == 8
    assert min(found.repeats_ns) > 0


TOY = InferenceModel("toy", 4, 8, 2, 1, 4, 16, 32, 4)


@pytest.mark.parametrize("layers", [range(4), range(1, 3), range(3, 4)])
@pytest.mark.parametrize("prior_tokens", [0, 1, 6])
def test_a_chunk_after_its_prior_tokens_goes_through_any_layers_once_a_pass(
    layers: range, prior_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = InferenceStage(TOY, layers, seed=0, device=CpuDevice(), precision="fp32")
    prefilled: list[tuple[int, int, int]] = []
    outputs: list[torch.Tensor] = []
    real = InferenceStage.prefill_chunk

    def counted(self, cache, inputs, prior_tokens):  # type: ignore[no-untyped-def]
        outputs.append(real(self, cache, inputs, prior_tokens))
        prefilled.append((len(inputs), prior_tokens, cache.tokens))
        return outputs[-1]

    monkeypatch.setattr(InferenceStage, "prefill_chunk", counted)
    found = measure_chunk(stage, 5, prior_tokens, Pace(7, 0, 0))
    assert len(found) == 7
    assert min(found) > 0
    prior = [(prior_tokens, 0, prior_tokens)] if prior_tokens else []
    assert prefilled[: len(prior)] == prior
    assert prefilled[len(prior) :] == [(5, prior_tokens, prior_tokens + 5)] * (3 + 7)
    assert all(torch.equal(each, outputs[-1]) for each in outputs[len(prior) :])


def test_the_tokens_of_a_chunk_differ() -> None:
    stage = InferenceStage(TOY, range(4), seed=0, device=CpuDevice(), precision="fp32")
    begun: list[torch.Tensor] = []
    real = stage.begin_chunk

    def kept(cache, inputs, prior_tokens):  # type: ignore[no-untyped-def]
        begun.append(inputs)
        return real(cache, inputs, prior_tokens)

    stage.begin_chunk = kept  # type: ignore[method-assign]
    measure_chunk(stage, 20, 0, Pace(7, 0, 0))
    assert len(begun[0].unique()) > 5


TINY = GptConfig(layers=3, hidden=16, context=8, heads=2, vocabulary=32)

WORK = TorchWork(
    ComputedStage(stages=3, stage=1, pipelines=1, pipeline=0, microbatches=1),
    LearningConfig(TINY, 1e-3, "fp32", seed=0),
    TrainingDevice("cpu"),
    recompute=True,
)

QUICK = Pace(7, 0, 0)

LATE_NS = 50_000_000

ACTIONS = {"forward", "recompute", "backward", "backward_input", "backward_weight", "optimizer"}


@pytest.mark.parametrize("stage", range(3))
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_action_of_every_stage_is_measured_in_every_repeat(stage: int, precision: str) -> None:
    lines: list[None] = []
    work = changed(WORK, stage=stage, precision=precision)
    found = measure_stage(work, QUICK, lambda: lines.append(None))
    assert set(found) == ACTIONS
    assert all(len(figures) == 7 and min(figures) > 0 for figures in found.values())
    assert len(lines) == 14


def test_a_pass_takes_as_many_microbatches_as_it_is_asked_to() -> None:
    driver = StageDriver(WORK)
    performed: list[str] = []
    real = driver._compute.perform

    def counted(action):  # type: ignore[no-untyped-def]
        performed.append(action.kind.value)
        return real(action)

    driver._compute.perform = counted  # type: ignore[method-assign]
    found = driver.passes(3)
    assert performed == ["forward", "recompute", "backward"] * 3
    assert set(found) == {"forward", "recompute", "backward", "optimizer"}


def test_actions_last_as_long_as_a_gpu_is_busy_and_not_as_long_as_the_host_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy_ns = {"forward": 30_000_000, "recompute": 40_000_000, "backward": 70_000_000, "optimizer": 10_000_000}
    with on_hostile_gpu() as gpu:
        gpu.wake_up_ns = LATE_NS
        monkeypatch.setattr(device_measurement, "create_timer", lambda _: EventTimer(gpu, gpu.host_clock_ns))
        driver = StageDriver(WORK)

        def lasting(work: Callable[..., None], kind: str) -> Callable[..., None]:
            def work_and_keep_busy(*arguments: int) -> None:
                work(*arguments)
                gpu.keep_busy(busy_ns[kind])

            return work_and_keep_busy

        compute = driver._compute
        for kind in (ActionKind.FORWARD, ActionKind.RECOMPUTE, ActionKind.BACKWARD):
            compute._work_of[kind] = lasting(compute._work_of[kind], kind.value)
        monkeypatch.setattr(compute._parameters, "update", lasting(compute._parameters.update, "optimizer"))
        for _ in range(2):
            # The stage's own kernels last a microsecond each.
            assert driver.passes(3) == pytest.approx(busy_ns, rel=2e-2)


def test_messages_of_a_measured_stage_come_from_pinned_memory() -> None:
    with on_hostile_gpu() as gpu:
        driver = StageDriver(WORK)
        driver.passes(1)
        gpu.waits.clear()
        driver.passes(2)
    assert set(gpu.waits) == {"event"}


def test_a_stage_alone_is_measured_too() -> None:
    work = changed(WORK, model=replace(TINY, layers=1), stages=1, stage=0)
    assert set(StageDriver(work).passes(1)) == {"forward", "recompute", "backward", "optimizer"}


def test_a_stage_is_built_once_and_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[TorchCompute]] = []

    class Watched(TorchCompute):
        def __init__(self, work: TorchWork, release: Callable[[memoryview], None]) -> None:
            super().__init__(work, release)
            made.append(weakref.ref(self))

    monkeypatch.setattr(device_measurements, "TorchCompute", Watched)
    measure_stage(WORK, QUICK)
    assert [one() for one in made] == [None]


def test_the_parts_of_backwards_are_measured_after_whole_ones() -> None:
    driver = StageDriver(WORK)
    driver.passes(1)
    driver.split_backwards()
    assert set(driver.passes(1)) == ACTIONS - {"backward"}


@pytest.mark.parametrize("stage", range(3))
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_no_step_of_a_measurement_changes_a_weight(stage: int, precision: str) -> None:
    driver = StageDriver(changed(WORK, stage=stage, precision=precision, learning_rate=0.1))
    weights = driver._compute._parameters.weights
    before = weights.clone()
    for _ in range(40):
        driver.passes(3)
    torch.testing.assert_close(weights, before, rtol=0, atol=1e-15)


def test_payloads_are_in_the_memory_that_a_rank_receives_in(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[memoryview] = []

    def receive_buffer(_: TorchCompute, size_bytes: int) -> memoryview:
        made.append(memoryview(bytearray(b"\xff" * size_bytes)))
        return made[-1]

    monkeypatch.setattr(TorchCompute, "receive_buffer", receive_buffer)
    driver = StageDriver(WORK)
    assert [driver._activation is made[0], driver._gradient is made[1]] == [True, True]
    assert all(as_tensor(payload, torch.float32).isfinite().all() for payload in made)
