"""Find CUDA's Multi-Process Service, MPS.

With it kernels of several processes run on one GPU at the same time, which they otherwise do in turns.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
THREAD_PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_DEFAULT_DIRECTORY = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA itself looks
_CONTROL_PROGRAM = "nvidia-cuda-mps-control"
_COMM_CHARACTERS = 15


@dataclass(frozen=True)
class Mps:
    """MPS as processes of this machine find it.

    ``pipe_directory`` is where they connect. ``active_thread_percentage`` is the share of a GPU's multiprocessors that
    each may use, as its variable says, None for no limit.
    """

    pipe_directory: str
    active_thread_percentage: str | None


def find_mps(environment: Mapping[str, str] = os.environ, processes: Path = Path("/proc")) -> Mps | None:
    """Return MPS if its daemon runs and CUDA programs with this environment would use it, else None.

    They do if the daemon's pipe is in the directory that they look in. A pipe alone may be left from a daemon that has
    ended.
    """
    directory = environment.get(PIPE_DIRECTORY) or _DEFAULT_DIRECTORY
    if not (Path(directory) / "control").exists() or not _runs(processes):
        return None
    return Mps(directory, environment.get(THREAD_PERCENTAGE))


def _runs(processes: Path) -> bool:
    for comm in processes.glob("[0-9]*/comm"):
        try:
            name = comm.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue
        if name == _CONTROL_PROGRAM[:_COMM_CHARACTERS]:
            return True
    return False
