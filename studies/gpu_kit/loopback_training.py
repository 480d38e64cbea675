"""Train over loopback, as real rank processes without an emulated network: it needs neither root nor namespaces."""

import os
import secrets
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from wanbed.module_process import module_command
from wanbed.results.records.span_log import SpanLogContents, read_span_log
from wanbed.runner.companions.losses.on_hosts import largest_error, loss_rows, mean_losses
from wanbed.runner.emulation.rank_configs import SharedConfig, configure_ranks
from wanbed.runner.emulation.rank_processes import RANK
from wanbed.runner.emulation.training import BASELINE_RANK
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import in_pipelines
from wanbed.runner.trainings.torch_baseline.on_hosts import configure_baseline
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant
from wanbed.testbed.network.address_book import AddressBook
from wanbed.testbed.network.topology import Host
from wanbed.workloads.baselines.baseline_config import GlooConfig

LOOPBACK = "127.0.0.1"
ITERATIONS = 4
PATIENCE_S = 120.0
_DYNAMIC_PORTS = range(21_000, 31_000)


class _RankFile(Protocol):
    def write(self, path: Path) -> None:
        """Write the configuration as JSON."""


class OneAddress(AddressBook):
    """The addresses of hosts that are all this machine: one that no other process trains at."""

    def address(self, host: Host) -> str:
        """Return the same address for every host."""
        high, low = divmod(os.getpid(), 250)
        return f"127.77.{high % 250}.{1 + low}"


@dataclass(frozen=True)
class LoopbackTraining:
    """The mean loss of every iteration, the last one's gradients by parameter, and the devices of the ranks."""

    losses: tuple[float, ...]
    gradients: dict[str, Any]
    devices: tuple[str, ...]

    def loss_error(self, other: "LoopbackTraining") -> float:
        """Return the largest relative difference of two losses of one iteration, nan if one is nan."""
        return largest_error(self.losses, other.losses)

    def same_bits(self, other: "LoopbackTraining") -> bool:
        """Return whether losses and gradients are equal, bit by bit."""
        return self.losses == other.losses and all(
            np.array_equal(gradient, other.gradients[name]) for name, gradient in self.gradients.items()
        )


class TrainingError(Exception):
    """Ranks did not train to the end; the message is one line with their last words."""


def train_over_loopback(schedule: str, precision: str, device: str, folder: Path) -> LoopbackTraining:
    """Train gpt-tiny in two stages and two pipelines, each a process on ``device``. Raise TrainingError."""
    folder.mkdir(parents=True)
    point = _point(schedule, precision)
    (variant,) = point.variants
    setting = SharedConfig(
        addresses=OneAddress(point.topology, 0),
        connections={(one.host.name, other.host.name): 1 for one, other in variant.pairs},
        dilation=1.0,
        run_token=secrets.token_hex(16),
        epoch_ns=time.monotonic_ns(),
        folder=folder,
        parent_pid=os.getpid(),
        keep_gradients=True,
        device=device,
    )
    configs: Sequence[_RankFile]
    if isinstance(variant, BaselineVariant):
        port = secrets.choice(_DYNAMIC_PORTS)
        gloo = GlooConfig(LOOPBACK, "lo", LOOPBACK, port)
        configs = [replace(config, gloo=gloo) for config in configure_baseline(point, variant, setting)]
    else:
        configs = [
            replace(config, process=replace(config.process, start_gate=None))
            for config in configure_ranks(point, in_pipelines(variant), setting)
        ]
    _run(BASELINE_RANK if isinstance(variant, BaselineVariant) else RANK, configs, folder)
    logs = [read_span_log(setting.span_log(rank)) for rank in range(len(configs))]
    return LoopbackTraining(
        tuple(mean_losses(loss_rows(logs, ()))), _gradients(setting, logs), tuple(_device(log) for log in logs)
    )


def _point(schedule: str, precision: str) -> SweepPoint:
    # DistributedDataParallel has one stage; four replicas of one microbatch train on the same sequences.
    shape = {"stages": 2, "pipelines": 2, "microbatches": 4}
    if schedule == "torch-ddp":
        shape = {"stages": 1, "pipelines": 4, "microbatches": 2}
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
            "wan": {"latency": "1ms"},
        },
        "model": "gpt-tiny",
        "compute": {"kind": "torch", "checkpointing": schedule == "varuna", "sharing": 4, "deterministic": True},
        "training": {
            "iterations": ITERATIONS,
            "warmup": 1,
            "precision": precision,
            **shape,
        },
        "variants": [{"name": schedule, "schedule": schedule}],
    }
    (point,) = parse_experiment(document, "the check", Path()).points()
    return point


def start_rank(program: str, config: Path) -> "subprocess.Popen[str]":
    """Start a rank in a process of its own, which keeps what it prints as errors."""
    return subprocess.Popen(module_command(program, str(config)), stderr=subprocess.PIPE, text=True)


def _run(program: str, configs: Sequence[_RankFile], folder: Path) -> None:
    ranks = []
    for rank, config in enumerate(configs):
        path = folder / f"rank-{rank}.json"
        config.write(path)
        ranks.append(start_rank(program, path))
    try:
        errors = [rank.communicate(timeout=PATIENCE_S)[1].strip() for rank in ranks]
    except subprocess.TimeoutExpired:
        raise TrainingError(f"not trained within {PATIENCE_S:.0f} s") from None
    finally:
        for process in ranks:
            process.kill()
    for process, error in zip(ranks, errors, strict=True):
        if process.returncode:
            raise TrainingError(error.splitlines()[-1] if error else f"a rank ended with status {process.returncode}")


def _gradients(setting: SharedConfig, logs: Sequence[SpanLogContents]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for log in logs:
        path = setting.gradients(log.header.rank)
        assert path is not None
        if log.header.pipeline == 0:
            found |= dict(np.load(path))
    return found


def _device(log: SpanLogContents) -> str:
    return "unknown" if log.device is None else f"{log.device.model} ({log.device.device})"
