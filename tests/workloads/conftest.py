import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.workloads.forked_rank import ForkedRank
from tests.support.workloads.loopback_ranks import REPLAY, ROOT, Start, free_ports
from wanbed.workloads.rank_config import RankConfig

MODULE = "wanbed.workloads.rank"
LOOPBACK = "127.0.0.1"


def written(plan: RankConfig, folder: Path) -> Path:
    path = folder / f"plan-{plan.rank}.json"
    plan.write(path)
    return path


@pytest.fixture
def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    (port,) = free_ports(1)
    return port


@pytest.fixture
def start_alone(tmp_path: Path) -> Iterator[Start]:
    """Start a rank as wanbed does, in a process that loads all that it needs."""
    with ExitStack() as started:

        def start_rank(plan: RankConfig) -> "subprocess.Popen[str]":
            command = [sys.executable, "-m", MODULE, str(written(plan, tmp_path))]
            process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
            started.callback(process.communicate)
            started.callback(process.kill)
            return process

        yield start_rank


@pytest.fixture
def start(tmp_path: Path, start_alone: Start) -> Iterator[Start]:
    """Start a rank; one that computes in torch is forked from a process that has loaded it."""
    with ExitStack() as started:

        def start_rank(plan: RankConfig) -> "subprocess.Popen[str] | ForkedRank":
            if plan.compute.backend == REPLAY:
                return start_alone(plan)
            process = ForkedRank(MODULE, written(plan, tmp_path))
            started.callback(process.communicate)
            started.callback(process.kill)
            return process

        yield start_rank
