"""Profiles of a GPU that does whatever CUDA allows: computed right, and timed by the GPU's clock."""

from dataclasses import replace

import pytest
import torch

from tests.runner.compute_profiling.test_measuring import PACE, stages_task
from tests.support.workloads.hostile_gpu.on_hostile_gpu import EACH_ORDER, on_hostile_gpu
from tests.support.workloads.hostile_gpu.streams import Order
from tests.support.workloads.one_thread import one_thread
from tests.support.workloads.reference_llama import SEED, TINY
from wanbed.runner.compute_profiling.device_at_hand import CpuAtHand
from wanbed.runner.compute_profiling.measuring import Measurement
from wanbed.runner.compute_profiling.task import PromptsTask, profile_task
from wanbed.workloads.compute.device import device_measurement
from wanbed.workloads.compute.device.device_measurement import EventTimer
from wanbed.workloads.compute.device.torch_device import CpuDevice, GpuDevice, TorchDevice, create_device
from wanbed.workloads.inference.decode import greedy_token
from wanbed.workloads.inference.inference_stage import InferenceStage
from wanbed.workloads.profiles.device_measurements import _multiplication
from wanbed.workloads.serving.prefill_compute import prompt_tokens

_one_thread = pytest.fixture(autouse=True)(one_thread)


def test_a_profile_of_stages_is_measured_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_hostile_gpu(Order.RANDOM) as gpu:
        # The GPU's clock stands still while nothing runs on it, so the host's has to as well.
        monkeypatch.setattr(device_measurement, "create_timer", lambda _: EventTimer(gpu, gpu.host_clock_ns))
        profile = Measurement(CpuAtHand(), PACE, lambda _: None).stages(stages_task())
        assert "value" not in gpu.waits
    for stage in profile.models[0].stages:
        for _, time in stage.times():
            assert len(time.repeats_ns) == PACE.repeats
            assert time.median_ns > 0


def test_a_profile_of_prompts_is_measured_by_events() -> None:
    task = profile_task(["llama-tiny"], "cpu", layers=2, prompts=[4, 8, 16])
    assert isinstance(task, PromptsTask)
    task = replace(task, product_sizes=(16,))
    with on_hostile_gpu(Order.RANDOM):
        profile = Measurement(CpuAtHand(), PACE, lambda _: None).prompts(task)
    assert [prompt.tokens for prompt in profile.prompts] == [4, 8, 16]
    assert all(prompt.time_ns > 0 for prompt in profile.prompts)


def prefilled(device: TorchDevice) -> tuple[int, bytes]:
    stage = InferenceStage(TINY, range(TINY.layers), seed=SEED, device=device, precision="fp32")
    cache = stage.new_cache(20)
    prompt = torch.tensor(prompt_tokens(SEED, 5, 20, TINY.vocabulary))
    stage.prefill_chunk(cache, prompt[:12], 0)
    return greedy_token(stage.prefill_chunk(cache, prompt[12:], 12)), bytes(cache.to_bytes())


@pytest.mark.parametrize(("order", "seed"), EACH_ORDER)
def test_the_layers_that_are_measured_compute_as_on_the_cpu(order: Order, seed: int) -> None:
    expected = prefilled(CpuDevice())
    with on_hostile_gpu(order, seed) as gpu:
        assert prefilled(GpuDevice(gpu.torch_device, gpu)) == expected


def test_the_product_that_gives_the_ceiling_is_computed_on_the_gpu() -> None:
    with on_hostile_gpu() as gpu:
        device = GpuDevice(gpu.torch_device, gpu)
        multiply = _multiplication(device, torch.float32, 16)
        gpu.waits.clear()
        device.timed(lambda: multiply(3))
        assert gpu.waits == ["event"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="shows what happens on a machine without a GPU")
def test_the_hostile_gpu_is_gone_after_a_test() -> None:
    with on_hostile_gpu():
        pass
    assert isinstance(create_device("auto"), CpuDevice)
