import sys
from pathlib import Path

import pytest

from tests.support.testbed.fake_pynvml import FakeGpu, FakePynvml
from wanbed.testbed.gpus.gpus import Gpu, Mps, device_files, find_mps, machine_gpus, nvidia_gpus, visible_gpus

VERSIONS = {
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sun Feb 18 20:40:30 UTC 2024\n": "535.161.08",
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build  (dvs-builder)\n": "550.54.14",
    "something else 1.2.3\n": None,
}


def driver(folder: Path, *cards: str) -> Path:
    for number, text in enumerate(cards):
        card = folder / "gpus" / f"0000:0{number}:00.0"
        card.mkdir(parents=True)
        (card / "information").write_text(text)
    return folder


@pytest.mark.parametrize(("text", "version"), VERSIONS.items())
def test_gpus_are_reported_with_their_driver(tmp_path: Path, text: str, version: str | None) -> None:
    (driver(tmp_path, "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 1\n", "IRQ: 2\n") / "version").write_text(text)
    assert nvidia_gpus(tmp_path) == (Gpu("NVIDIA H100 80GB HBM3", version), Gpu("unknown", version))


def test_driver_without_a_version_is_listed(tmp_path: Path) -> None:
    assert nvidia_gpus(driver(tmp_path, "Model: NVIDIA H100\n")) == (Gpu("NVIDIA H100", None),)


def test_without_a_driver_there_are_none(tmp_path: Path) -> None:
    assert nvidia_gpus(tmp_path) == ()


def test_driver_files_have_uuids(tmp_path: Path) -> None:
    text = "Model: \t\t NVIDIA H100\nIRQ:   \t\t 70\nGPU UUID: \t GPU-8f3c\nVideo BIOS: \t 96.00\n"
    assert nvidia_gpus(driver(tmp_path, text)) == (Gpu("NVIDIA H100", None, "GPU-8f3c"),)


def test_nvml_comes_before_the_drivers_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = driver(tmp_path, "Model: NVIDIA H100\n", "Model: NVIDIA H100\n")
    monkeypatch.setitem(sys.modules, "pynvml", FakePynvml([FakeGpu("GPU-1", "NVIDIA H200", 7)]))
    assert machine_gpus(files) == (Gpu("NVIDIA H200", "570.1", "GPU-1", 7),)
    monkeypatch.setitem(sys.modules, "pynvml", FakePynvml([], fault="Driver Not Loaded"))
    assert [gpu.model for gpu in machine_gpus(files)] == ["NVIDIA H100"] * 2


def test_a_uuid_that_the_driver_masks_is_unknown(tmp_path: Path) -> None:
    text = "Model: NVIDIA H100\nGPU UUID: \t GPU-????????-????-????-????-????????????\n"
    assert nvidia_gpus(driver(tmp_path, text)) == (Gpu("NVIDIA H100", None),)


def test_faults_are_listed_and_never_visible(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refused = FakeGpu("GPU-0", refuses={"permission"})
    monkeypatch.setitem(sys.modules, "pynvml", FakePynvml([refused, FakeGpu("GPU-1", total=7)]))
    found = machine_gpus(tmp_path)
    assert found == (
        Gpu("GPU 0", "570.1", fault="NVML: Insufficient Permissions"),
        Gpu("NVIDIA H200", "570.1", "GPU-1", 7),
    )
    assert visible_gpus(found, None) == visible_gpus(found, "0") == found[1:]


def test_device_files_show_gpus_that_nobody_lists(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert device_files(tmp_path) == (str(tmp_path / "nvidia0"), str(tmp_path / "nvidia1"))


MIG = (
    Gpu("NVIDIA H200", None, "GPU-aa1"),
    Gpu("NVIDIA H200 MIG 1g.18gb", None, "MIG-b1", parent="GPU-bb2"),
    Gpu("NVIDIA H200 MIG 1g.18gb", None, "MIG-b2", parent="GPU-bb2"),
    Gpu("NVIDIA H200", None, "GPU-cc3"),
)


@pytest.mark.parametrize(
    ("value", "places"),
    [(None, [0, 1, 2, 3]), ("MIG-b2,MIG-b1", [2, 1]), ("1,2", [1, 3]), ("GPU-bb2,0", [1, 0]), ("MIG-GPU-bb2/1/0", [])],
)
def test_mig_instances_are_visible_by_their_uuid_or_by_their_gpu(value: str | None, places: list[int]) -> None:
    assert visible_gpus(MIG, value) == tuple(MIG[place] for place in places)


GPUS = tuple(Gpu("NVIDIA H200", None, uuid) for uuid in ("GPU-aa1", "GPU-ab2", "GPU-bc3"))


@pytest.mark.parametrize(
    ("value", "places"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        (" 1 , 2", [1, 2]),
        ("GPU-b,0", [2, 0]),
        ("GPU-a", []),  # two begin like that
        ("0,9,1", [0]),
        ("1,-1,0", [1]),
        ("NoDevFiles", []),
    ],
)
def test_visible_gpus_follow_cuda_visible_devices(value: str | None, places: list[int]) -> None:
    assert visible_gpus(GPUS, value) == tuple(GPUS[place] for place in places)


def running(folder: Path, *programs: str) -> Path:
    for pid, program in enumerate(programs, start=100):
        (folder / str(pid)).mkdir(parents=True)
        (folder / str(pid) / "comm").write_text(f"{program}\n")
    return folder


@pytest.fixture
def pipes(tmp_path: Path) -> Path:
    (tmp_path / "pipes").mkdir()
    (tmp_path / "pipes" / "control").touch()
    return tmp_path / "pipes"


def test_a_daemon_with_its_pipe_is_found(tmp_path: Path, pipes: Path) -> None:
    processes = running(tmp_path / "proc", "bash", "nvidia-cuda-mps")
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
    assert find_mps(environment, processes) == Mps(str(pipes), None)
    limited = {**environment, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}
    assert find_mps(limited, processes) == Mps(str(pipes), "25")


def test_a_pipe_that_a_daemon_has_left_is_not_mps(tmp_path: Path, pipes: Path) -> None:
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
    assert find_mps(environment, running(tmp_path / "proc", "bash")) is None


def test_a_daemon_whose_pipe_is_elsewhere_is_not_used(tmp_path: Path) -> None:
    processes = running(tmp_path / "proc", "nvidia-cuda-mps")
    assert find_mps({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}, processes) is None
