import sys
import time

import pytest

from runner.emulation.telemetry.gpu_sampler import gpu_samples, sampling_gpus
from tests.testbed.fake_pynvml import FakeGpu, FakePynvml

PATIENCE_S = 10


@pytest.fixture
def gpus() -> list[FakeGpu]:
    return [FakeGpu("GPU-1"), FakeGpu("GPU-2", refuses={"power"})]


@pytest.fixture
def binding(gpus: list[FakeGpu], monkeypatch: pytest.MonkeyPatch) -> FakePynvml:
    fake = FakePynvml(gpus)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_every_gpu_is_read_at_the_begin_the_end_and_between(binding: FakePynvml) -> None:
    epoch_ns = time.monotonic_ns()
    with sampling_gpus(["GPU-1", "GPU-2"], epoch_ns, interval_s=0.001) as found:
        assert binding.sessions == 1
        deadline = time.monotonic() + PATIENCE_S
        while len(found.readings) < 10 and time.monotonic() < deadline:
            time.sleep(0.001)
    assert binding.sessions == 0
    assert found.fault is None
    samples = gpu_samples(found, 1)
    assert len(samples) >= 10
    assert [sample.device for sample in samples[:2]] == ["GPU-1", "GPU-2"]
    assert samples == sorted(samples, key=lambda sample: sample.time_ns)
    assert samples[0].time_ns >= 0
    assert samples[0].utilization is not None
    assert samples[0].power_w is not None
    assert samples[1].power_w is None


def test_times_are_those_of_the_experiment(binding: FakePynvml) -> None:
    with sampling_gpus(["GPU-1"], time.monotonic_ns() - 10**12) as found:
        pass
    assert gpu_samples(found, 1)[0].time_ns >= 10**12
    assert gpu_samples(found, 10)[0].time_ns == pytest.approx(gpu_samples(found, 1)[0].time_ns / 10, abs=1)


def test_a_gpu_that_is_lost_ends_the_readings_and_tells_why(binding: FakePynvml) -> None:
    with sampling_gpus(["GPU-1", "GPU-9"], time.monotonic_ns()) as found:
        pass
    assert [uuid for _, uuid, _ in found.readings] == ["GPU-1"]
    assert found.fault == "NVML: Not Found"


def test_without_nvml_a_trial_has_no_samples_and_knows_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with sampling_gpus(["GPU-1"], 0) as found:
        pass
    assert gpu_samples(found, 1) == []
    assert found.fault is not None
    assert "nvidia-ml-py" in found.fault


def test_where_no_gpu_computes_nvml_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with sampling_gpus([], 0) as found:
        pass
    assert (found.readings, found.fault) == ([], None)
