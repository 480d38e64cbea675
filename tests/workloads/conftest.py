import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.workloads.loopback_ranks import ROOT, Start
from workloads.rank_config import RankConfig


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    processes: list[subprocess.Popen[str]] = []

    def start_rank(plan: RankConfig) -> "subprocess.Popen[str]":
        path = tmp_path / f"plan-{plan.rank}.json"
        plan.write(path)
        process = subprocess.Popen(
            [sys.executable, "-m", "workloads.rank", str(path)], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
        return process

    yield start_rank
    for process in processes:
        process.kill()
        process.communicate()
