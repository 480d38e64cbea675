"""Ranks whose gradients torch's own collective sums, as processes over loopback; Gloo plays NCCL on the CPU."""

import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.support.workloads.loopback_ranks import LOOPBACK, Start, free_ports
from tests.support.workloads.reference_training import train_reference
from tests.support.workloads.torch_configs import LEARNING_RATE, MICROBATCHES, SEED, TINY, make_torch_configs
from wanbed.results.records.span_log import read_span_log
from wanbed.workloads.collective.collective_config import CollectiveConfig
from wanbed.workloads.collective.device_all_reduce import DeviceAllReduce, check_backend
from wanbed.workloads.rank_config import RankConfig
from wanbed.workloads.transport.links_config import RingsConfig

PATIENCE_S = 300
ITERATIONS = 3


def summed_by(backend: str, plans: list[RankConfig]) -> list[RankConfig]:
    """The replicas of each stage sum by that backend in place of the ring."""
    stages = plans[0].shape.stages
    ports = free_ports(stages)
    return [
        replace(
            plan,
            links=replace(plan.links, rings=RingsConfig()),
            compute=replace(
                plan.compute,
                collective=CollectiveConfig(
                    backend=backend,
                    hosts=tuple(other.host for other in plans[plan.place.stage :: stages]),
                    position=plan.place.pipeline,
                    interface="lo",
                    store_address=LOOPBACK,
                    store_port=ports[plan.place.stage],
                    timeout_ns=PATIENCE_S * 10**9,
                ),
            ),
        )
        for plan in plans
    ]


def test_collective_all_reduce_trains_as_one_process_until_a_replica_is_lost(tmp_path: Path, start: Start) -> None:
    plans = summed_by("gloo", make_torch_configs(tmp_path, stages=1, pipelines=2, iterations=10_000))
    processes = [start(plan) for plan in plans]
    logs = [Path(plan.process.span_log) for plan in plans]
    begun_s = time.monotonic()
    while not all(log.exists() and len(read_span_log(log).losses) >= ITERATIONS for log in logs):
        assert [process.poll() for process in processes] == [None, None]
        assert time.monotonic() < begun_s + PATIENCE_S
        time.sleep(0.02)
    processes[1].kill()
    words = processes[0].communicate(timeout=30)[1]
    assert processes[0].returncode == 1
    assert words.startswith("wanbed rank 0 (host-0): ")
    assert len(words.splitlines()) == 1

    losses: dict[int, float] = defaultdict(float)
    for log in map(read_span_log, logs):
        assert not log.complete
        sums = [span for span in log.spans if span.kind == "all_reduce"][:ITERATIONS]
        assert [(span.iteration, span.size_bytes) for span in sums] == [
            (iteration, TINY.gradient_bytes(0, 1, "fp32")) for iteration in range(ITERATIONS)
        ]
        for iteration, loss in log.losses:
            losses[iteration] += loss / 2  # of two replicas
    reference = train_reference(
        TINY,
        pipelines=2,
        microbatches=MICROBATCHES,
        iterations=ITERATIONS,
        seed=SEED,
        learning_rate=LEARNING_RATE,
    )
    assert [losses[iteration] for iteration in range(ITERATIONS)] == pytest.approx(reference.losses, rel=1e-5)


@pytest.mark.skipif(torch.distributed.is_nccl_available(), reason="shows a torch without NCCL, and this one has it")
def test_without_nccl_a_rank_says_so_before_it_connects(tmp_path: Path, start: Start) -> None:
    (plan, _) = summed_by("nccl", make_torch_configs(tmp_path, stages=1, pipelines=2))
    words = start(plan).communicate(timeout=PATIENCE_S)[1]
    assert words.startswith("wanbed rank 0 (host-0): transport.all_reduce: this torch (")
    assert words.endswith("has no NCCL: install one that is built for CUDA, or leave all_reduce out\n")


def test_a_collective_that_hangs_ends_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    hung, reports = SimpleNamespace(is_completed=lambda: False), []
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda _, async_op: hung if async_op else None)
    config = CollectiveConfig("gloo", ("east-0", "east-1"), 0, "eth0", LOOPBACK, 20_000, 1, 20_000_000)
    all_reduce = DeviceAllReduce.__new__(DeviceAllReduce)
    all_reduce._config, all_reduce._gradients, all_reduce._report = config, torch.zeros(4), reports.append
    all_reduce._sum()
    (failed,) = reports
    assert str(failed.error) == "the all-reduce over east-0, east-1 failed: not done within 0.02 s"


def test_gloo_is_there_wherever_torch_is() -> None:
    check_backend("gloo")
