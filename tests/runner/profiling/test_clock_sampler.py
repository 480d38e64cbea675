import time

import pytest

from wanbed.runner.profiling.clock_sampler import ClockSampler
from wanbed.testbed.gpus.nvml import NvmlError
from wanbed.workloads.profiles.measured_conditions import DeviceState, clocks_of

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
