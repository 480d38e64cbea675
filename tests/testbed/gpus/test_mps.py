from pathlib import Path

import pytest

from wanbed.testbed.gpus.mps import Mps, find_mps


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
