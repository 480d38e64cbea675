"""Worlds of torch ranks as real processes over loopback."""

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.workloads.forked_rank import ForkedRank
from wanbed.results.records.span_log import SpanLogContents, read_span_log
from wanbed.workloads.baselines.baseline_config import BaselineConfig
from wanbed.workloads.gpt.gpt_config import GptConfig

ROOT = Path(__file__).parents[3]
LOOPBACK = "127.0.0.1"
PATIENCE_S = 120
CONFIG = GptConfig(layers=4, hidden=32, context=16, heads=2, vocabulary=64)
ITERATIONS = 3


@dataclass(frozen=True)
class World:
    plans: list[BaselineConfig]
    processes: "dict[int, subprocess.Popen[str] | ForkedRank]"

    def outcome(self, rank: int) -> tuple[int, str]:
        """Exit status and standard error."""
        _, errors = self.processes[rank].communicate(timeout=PATIENCE_S)
        return self.processes[rank].returncode, errors

    def log(self, rank: int) -> SpanLogContents:
        return read_span_log(Path(self.plans[rank].span_log))

    def await_first_iteration(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not all(Path(plan.span_log).exists() and self.log(plan.place.rank).spans for plan in self.plans):
            assert time.monotonic() < deadline, "no iteration ended"
            assert all(process.poll() is None for process in self.processes.values()), "a rank has ended"
            time.sleep(0.05)


StartWorld = Callable[..., World]
