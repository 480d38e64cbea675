"""Replicas that swap their layers, as processes over loopback, against replicas that do not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.workloads.loopback_ranks import Start
from tests.support.workloads.reference_local_updates import train_tiny_replicas
from tests.support.workloads.synchronized_ranks import PATIENCE_S, lose_and_start_again, mean_losses, star_configs
from tests.support.workloads.torch_configs import MICROBATCHES, TINY
from wanbed.results.records.span_log import COMPUTE_KINDS, read_span_log
from wanbed.workloads.compute.device_settings import SwapSettings
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.kept_files import KeptFilesConfig, SnapshotConfig, snapshot_file
from wanbed.workloads.rank_config import RankConfig
from wanbed.workloads.synchronization.synchronization import SumTopology, Synchronization

REPLICAS, ITERATIONS = 3, 4
SMALL = GptConfig(layers=2, hidden=32, context=32, heads=2, vocabulary=256)


def swapping(plan: RankConfig, settings: SwapSettings) -> RankConfig:
    device = replace(plan.compute.device, swapping=settings)
    return replace(plan, compute=replace(plan.compute, device=device))


def test_replicas_of_a_star_that_swap_learn_as_one_process(tmp_path: Path, start: Start) -> None:
    synchronization = Synchronization(2, topology=SumTopology.STAR)
    plans = star_configs(tmp_path, synchronization, ITERATIONS, REPLICAS)
    # Given groups, and groups that the rank measures.
    plans = [swapping(plan, SwapSettings((1, 2, 1) if plan.rank else None)) for plan in plans]
    processes = [start(plan) for plan in plans]
    assert [process.wait(PATIENCE_S) for process in processes] == [0] * REPLICAS
    losses = mean_losses(plans, ITERATIONS)
    assert losses == pytest.approx(train_tiny_replicas(synchronization, REPLICAS, ITERATIONS), rel=1e-6)
    measured, *given = (read_span_log(Path(plan.process.span_log)) for plan in plans)
    assert measured.swapping is not None
    assert measured.swapping.planned_ns is not None
    for log in given:
        assert log.swapping is not None
        assert [group.layers for group in log.swapping.groups] == [1, 2, 1]
        of_groups = [span.virtual_stage for span in log.spans if span.kind in COMPUTE_KINDS and not span.iteration]
        forwards = [group for group in range(3) for _ in range(MICROBATCHES)]
        backwards = [group for group in (2, 1, 0) for _ in range(2 * MICROBATCHES)]
        assert [group for group in of_groups if group is not None] == forwards + backwards
        assert log.swapping.returned_bytes == ITERATIONS * TINY.gradient_bytes(0, 1, "fp32")


def test_a_replica_that_swaps_and_comes_back_has_the_weights_of_the_others_to_the_bit(
    tmp_path: Path, start: Start
) -> None:
    iterations = 60
    synchronization = Synchronization(4, topology=SumTopology.STAR, quorum=2)
    snapshots = SnapshotConfig(str(tmp_path / "weights"), iterations, iterations)
    plans = [
        swapping(replace(plan, kept=KeptFilesConfig(snapshots=snapshots)), SwapSettings((1, 1)))
        for plan in star_configs(tmp_path, synchronization, iterations, 3, SMALL)
    ]
    assert lose_and_start_again(plans, start) < iterations
    gatherer, returned = (np.load(snapshot_file(tmp_path / "weights", iterations, rank, 0)) for rank in (0, 2))
    assert gatherer.files == returned.files
    assert all(np.array_equal(gatherer[name], returned[name]) for name in gatherer.files)
