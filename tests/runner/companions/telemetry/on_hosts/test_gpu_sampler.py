import sys
from contextlib import ExitStack
from typing import cast

import pytest

from tests.support.testbed.fake_pynvml import FakeGpu, FakePynvml
from wanbed.results.records.schema import GpuSample
from wanbed.results.records.trial_tables import GPU_TABLE
from wanbed.runner.companions.telemetry.on_hosts.gpu_sampler import GpuSampler
from wanbed.runner.companions.telemetry.on_hosts.sampling import sampling
from wanbed.testbed.gpus.gpu_assignment import GpuAssignment
from wanbed.testbed.hosts.hosts_here import HostsHere
from wanbed.testbed.running_testbed import RunningTestbed


@pytest.fixture
def binding(monkeypatch: pytest.MonkeyPatch) -> FakePynvml:
    fake = FakePynvml([FakeGpu("GPU-1"), FakeGpu("GPU-2", refuses={"power"})])
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def hosts_owning(*uuids: str) -> RunningTestbed:
    """A testbed whose hosts own these GPUs, the first of them twice."""
    testbed = HostsHere()
    testbed.gpus = GpuAssignment({"east-0": (*uuids, *uuids[:1])}) if uuids else None
    return cast("RunningTestbed", testbed)


def sampled(*uuids: str) -> tuple[list[GpuSample], dict[str, str]]:
    """What a short trial leaves: its rows and facts."""
    with sampling((GpuSampler,), hosts_owning(*uuids), epoch_ns=0, dilation=1.0) as samples:
        pass
    return samples.tables[GPU_TABLE], samples.facts  # type: ignore[return-value]


def test_every_gpu_is_read_at_the_begin_and_the_end(binding: FakePynvml) -> None:
    samples, facts = sampled("GPU-2", "GPU-1")
    assert [sample.device for sample in samples] == ["GPU-1", "GPU-2"] * 2
    assert samples == sorted(samples, key=lambda sample: sample.time_ns)
    assert samples[0].utilization is not None
    assert samples[0].power_w is not None
    assert samples[1].power_w is None
    assert facts == {}


def test_nvml_is_closed_at_the_end(binding: FakePynvml) -> None:
    with ExitStack() as ending:
        GpuSampler.of(hosts_owning("GPU-1"), ending)
        assert binding.sessions == 1
    assert binding.sessions == 0


def test_a_lost_gpu_has_a_fault_and_the_others_are_still_read(binding: FakePynvml) -> None:
    samples, facts = sampled("GPU-0", "GPU-1", "GPU-2")
    assert [sample.device for sample in samples] == ["GPU-1", "GPU-2"] * 2
    assert facts == {"nvml_fault": "GPU-0: NVML: Not Found"}


def test_without_nvml_a_trial_has_a_fault_and_no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    samples, facts = sampled("GPU-1")
    assert samples == []
    assert "nvidia-ml-py" in facts["nvml_fault"]


def test_where_hosts_own_no_gpu_nvml_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert GpuSampler.of(hosts_owning(), ExitStack()) is None
