import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.workloads.changed import changed
from tests.support.workloads.forked_rank import ForkedRank
from tests.support.workloads.loopback_ranks import free_ports
from tests.workloads.baselines.torch_world import CONFIG, ITERATIONS, LOOPBACK, ROOT, StartWorld, World
from wanbed.results.records.span_log import RankPlace
from wanbed.workloads.baselines.baseline_config import BaselineConfig, BaselineShape, GlooConfig
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.kept_files import KeptFilesConfig

HOSTILE_GPU_RANK = "tests.support.workloads.torch_rank_on_hostile_gpu"


def run_alone(program: str, config: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", program, str(config)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def start_world(tmp_path: Path) -> Iterator[StartWorld]:
    """``start_world(schedule, stages, pipelines, ...)`` forks ranks that have loaded torch; those ``alone`` load it."""
    started: list[subprocess.Popen[str] | ForkedRank] = []

    def start(
        schedule: str,
        stages: int,
        pipelines: int,
        absent: Collection[int] = (),
        *,
        alone: Collection[int] = (),
        **changes: Any,
    ) -> World:
        port, epoch_ns = free_ports(1)[0], time.monotonic_ns()
        folder = tmp_path / schedule
        folder.mkdir()
        plans: list[BaselineConfig] = []
        processes: dict[int, subprocess.Popen[str] | ForkedRank] = {}
        for rank in range(pipelines * stages):
            pipeline, stage = divmod(rank, stages)
            plan = changed(
                BaselineConfig(
                    RankPlace(rank, f"host-{rank}", "east", 0, pipeline, stage),
                    BaselineShape(schedule, stages, pipelines, microbatches=4),
                    ITERATIONS,
                    LearningConfig(CONFIG, 1e-3, "fp32", seed=3),
                    GlooConfig(LOOPBACK, "lo", LOOPBACK, port),
                    str(folder / f"{rank}.spans"),
                    epoch_ns,
                    kept=KeptFilesConfig(str(folder / f"{rank}.npz")),
                ),
                **changes,
            )
            plan.write(folder / f"{rank}.json")
            plans.append(plan)
            if rank not in absent:
                program = HOSTILE_GPU_RANK if plan.device.name == "cuda" else "wanbed.workloads.baselines.torch_rank"
                config = folder / f"{rank}.json"
                processes[rank] = run_alone(program, config) if rank in alone else ForkedRank(program, config)
                started.append(processes[rank])
        return World(plans, processes)

    yield start
    for process in started:
        process.kill()
        process.communicate()
