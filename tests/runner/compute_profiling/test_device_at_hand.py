import sys
import time
from pathlib import Path

import pytest

from tests.support.testbed.fake_pynvml import FakeGpu, FakePynvml
from wanbed.ground.errors import InputError, MissingError
from wanbed.runner.compute_profiling import device_at_hand as module
from wanbed.runner.compute_profiling.device_at_hand import (
    ClockSampler,
    CpuAtHand,
    available_bytes,
    device_at_hand,
    group_left_bytes,
)
from wanbed.testbed.gpus.gpus import Gpu
from wanbed.testbed.gpus.nvml import NvmlError
from wanbed.workloads.profiles.compute_profile import DeviceState, clocks_of


def machine(monkeypatch: pytest.MonkeyPatch, *gpus: FakeGpu) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakePynvml(list(gpus)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize("asked", ["auto", "cuda"])
def test_a_gpu_is_reported_by_nvml(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    machine(monkeypatch, FakeGpu("GPU-1", "NVIDIA H200", total=100, used=40, reasons=0x20), FakeGpu("GPU-2"))
    with device_at_hand(asked) as device:
        assert (device.kind, device.name, device.driver, device.free_bytes()) == ("cuda", "NVIDIA H200", "570.1", 60)
        state = device.state()
    assert (state.clock_hz, state.memory_clock_hz) == (1_980_000_000, 3_201_000_000)
    assert (state.temperature_c, state.power_w, state.throttled) == (54, 412.5, ("thermal limit",))


def test_the_gpu_is_the_first_that_cuda_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, FakeGpu("GPU-1", "one"), FakeGpu("GPU-2", "two"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-2,GPU-1")
    with device_at_hand("auto") as device:
        assert device.name == "two"


def test_the_cpu_is_used_if_configured_or_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, FakeGpu("GPU-1"))
    with device_at_hand("cpu") as device:
        assert isinstance(device, CpuAtHand)
    machine(monkeypatch)
    with device_at_hand("auto") as device:
        assert (device.kind, device.driver) == ("cpu", None)
        assert device.free_bytes() > 0
        assert device.state().power_w is None


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch)
    with (
        pytest.raises(MissingError, match=r"^--device cuda: this machine offers no NVIDIA GPU"),
        device_at_hand("cuda"),
    ):
        pytest.fail("there is none")
    with pytest.raises(InputError, match=r"^--device: 'tpu' is none of auto, cpu, cuda$"), device_at_hand("tpu"):
        pytest.fail("there is none")


def test_a_gpu_without_readable_clocks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "machine_gpus", lambda: (Gpu("NVIDIA H100", "570", "GPU-1"),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MissingError, match=r"pip install 'wanbed\[gpu\]'$"), device_at_hand("auto"):
        pytest.fail("its clocks are unknown")


def test_available_memory_is_the_kernels_figure() -> None:
    assert available_bytes("MemTotal:  100 kB\nMemFree:  10 kB\nMemAvailable:     70 kB\n") == 70 * 1024


@pytest.mark.parametrize(("limit", "left"), [("1000", [600]), ("max", []), ("100", [0]), (None, [])])
def test_a_control_group_may_leave_less(tmp_path: Path, limit: str | None, left: list[int]) -> None:
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text("400\n")
    assert group_left_bytes(tmp_path) == left


LONG_S = 3600.0


def at(clock_hz: int | None, *throttled: str) -> DeviceState:
    return DeviceState(
        clock_hz=clock_hz, memory_clock_hz=None, temperature_c=None, power_w=None, throttled=tuple(throttled)
    )


def test_the_lowest_and_the_median_clock_and_every_reason_are_kept() -> None:
    states = iter([at(1_980, "power cap"), at(None), at(1_200, "thermal limit"), at(1_755)])
    sampler = ClockSampler(lambda: next(states), LONG_S)
    for _ in range(4):
        with sampler.sampling():
            pass
    clocks = clocks_of(sampler.take())
    assert (clocks.samples, clocks.lowest_hz, clocks.median_hz) == (4, 1_200, 1_755)
    assert clocks.throttled == ("power cap", "thermal limit")


def test_samples_go_on_for_as_long_as_the_block() -> None:
    looks: list[int] = []

    def state() -> DeviceState:
        looks.append(1)
        return at(1)

    sampler = ClockSampler(state, 0.0001)
    with sampler.sampling():
        deadline_s = time.monotonic() + 10
        while len(looks) < 5 and time.monotonic() < deadline_s:
            time.sleep(0.001)
    assert clocks_of(sampler.take()).samples >= 5
    after = len(looks)
    assert clocks_of(sampler.take()).samples == 0
    assert len(looks) == after


def test_a_device_that_reports_no_clock_has_none() -> None:
    sampler = ClockSampler(lambda: at(None), LONG_S)
    with sampler.sampling():
        pass
    clocks = clocks_of(sampler.take())
    assert (clocks.samples, clocks.lowest_hz, clocks.median_hz) == (1, None, None)


def test_a_device_that_no_longer_answers_ends_the_measurement() -> None:
    def state() -> DeviceState:
        raise NvmlError("GPU is lost")

    sampler = ClockSampler(state, LONG_S)
    with pytest.raises(NvmlError, match="GPU is lost"), sampler.sampling():
        pass
