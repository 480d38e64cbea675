import sys

import pytest

from tests.support.testbed.fake_pynvml import FakeGpu, FakePynvml
from wanbed.testbed.gpus.nvml import NvmlDevice, NvmlError, NvmlReading, open_nvml


def fake(monkeypatch: pytest.MonkeyPatch, *gpus: FakeGpu, fault: str = "") -> FakePynvml:
    binding = FakePynvml(list(gpus), fault)
    monkeypatch.setitem(sys.modules, "pynvml", binding)
    return binding


def test_devices_are_reported_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, FakeGpu("GPU-b", "NVIDIA H200", 100), FakeGpu("GPU-a", "NVIDIA A100", 50))
    with open_nvml() as nvml:
        assert nvml.driver_version() == "570.1"
        assert nvml.devices() == (NvmlDevice("GPU-b", "NVIDIA H200", 100), NvmlDevice("GPU-a", "NVIDIA A100", 50))


def test_a_gpu_that_refuses_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(
        monkeypatch,
        FakeGpu("GPU-a", refuses={"permission"}),
        FakeGpu("GPU-b", total=100),
        FakeGpu("GPU-c", refuses={"uuid"}),
        FakeGpu("GPU-d", refuses={"memory"}),
    )
    with open_nvml() as nvml:
        assert nvml.devices() == (
            NvmlDevice(None, "GPU 0", None, fault="NVML: Insufficient Permissions"),
            NvmlDevice("GPU-b", "NVIDIA H200", 100),
            NvmlDevice(None, "GPU 2", None, fault="NVML: Not Supported"),
            NvmlDevice("GPU-d", "NVIDIA H200", None),
        )


def test_mig_instances_stand_in_for_their_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = [FakeGpu("MIG-1", "NVIDIA H200 MIG 1g.18gb", 18), None, FakeGpu("MIG-2", refuses={"uuid"})]
    fake(monkeypatch, FakeGpu("GPU-a", instances=slices), FakeGpu("GPU-b", "A2", 4, refuses={"MIG"}))
    with open_nvml() as nvml:
        assert nvml.devices() == (
            NvmlDevice("MIG-1", "NVIDIA H200 MIG 1g.18gb", 18, parent="GPU-a"),
            NvmlDevice(None, "MIG instance 2", None, parent="GPU-a", fault="NVML: Not Supported"),
            NvmlDevice("GPU-b", "A2", 4),
        )
        assert nvml.reading("MIG-1").memory_used_bytes == 2**30


def test_mig_mode_without_an_instance_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, FakeGpu("GPU-a", instances=[None, None]))
    with open_nvml() as nvml:
        (device,) = nvml.devices()
    assert device.uuid == "GPU-a"
    assert device.fault == "it is in MIG mode and has no instance: nvidia-smi mig -cgi PROFILE -C"


def test_nvml_reading_is_in_the_units_of_its_field_names(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, FakeGpu("GPU-a"), FakeGpu("GPU-b", total=100, used=30, reasons=0x4 | 0x1 | 0x20))
    with open_nvml() as nvml:
        assert nvml.reading("GPU-b") == NvmlReading(
            utilization=0.37,
            memory_used_bytes=30,
            memory_free_bytes=70,
            power_w=412.5,
            sm_clock_hz=1_980_000_000,
            memory_clock_hz=3_201_000_000,
            temperature_c=54,
            throttled=("power cap", "thermal limit"),
        )


def test_values_a_gpu_does_not_report_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, FakeGpu("GPU-a", refuses={"utilization", "power", "clocks", "reasons"}))
    with open_nvml() as nvml:
        reading = nvml.reading("GPU-a")
    assert (reading.utilization, reading.power_w, reading.sm_clock_hz, reading.memory_clock_hz) == (None,) * 4
    assert (reading.temperature_c, reading.throttled) == (54, ())


def test_a_gpu_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, FakeGpu("GPU-a"))
    with open_nvml() as nvml, pytest.raises(NvmlError, match=r"^NVML: Not Found$"):
        nvml.reading("GPU-c")


def test_a_session_ends_with_its_block_however_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    binding = fake(monkeypatch, FakeGpu("GPU-a"))
    session = open_nvml()
    session.__enter__()
    assert binding.sessions == 1
    session.__exit__(KeyError, KeyError(), None)
    assert binding.sessions == 0


def test_missing_driver_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, fault="Driver Not Loaded")
    with pytest.raises(NvmlError, match=r"^NVML: Driver Not Loaded$"), open_nvml():
        pytest.fail("there is no session")


def test_missing_nvml_binding_is_reported_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlError, match=r"^nvidia-ml-py is not installed: pip install 'wanbed\[gpu\]'$"), open_nvml():
        pytest.fail("there is no session")
