"""Replicas that train alone and synchronise seldom, as processes over loopback, against DiLoCo in one process."""

from pathlib import Path

import pytest

from tests.support.workloads.loopback_ranks import Start
from tests.support.workloads.reference_local_updates import train_tiny_replicas
from tests.support.workloads.synchronized_ranks import REPLICAS, train_synchronized
from workloads.synchronization.synchronization import Synchronization, Topology

ITERATIONS = 6


@pytest.mark.parametrize(
    ("synchronization", "stages"),
    [(Synchronization(4, fragments=2, delay=1, alpha=0.5), 1), (Synchronization(2), 2)],
    ids=["streaming", "pipelines"],
)
def test_ranks_learn_as_one_process(
    tmp_path: Path, start: Start, synchronization: Synchronization, stages: int
) -> None:
    losses, spans = train_synchronized(tmp_path, start, synchronization, ITERATIONS, stages=stages)
    assert losses == pytest.approx(train_tiny_replicas(synchronization, REPLICAS, ITERATIONS), rel=1e-6)
    for own in spans.values():
        applied = [span.iteration for span in own if span.kind == "all_reduce"]
        assert applied == [each for each in range(ITERATIONS) if synchronization.fragment_applied(each) is not None]


@pytest.mark.parametrize(
    "synchronization",
    [
        Synchronization(2, topology=Topology.STAR),
        Synchronization(4, fragments=2, delay=1, alpha=0.5, topology=Topology.STAR, quorum=3),
    ],
    ids=["diloco", "streaming with a quorum of all"],
)
def test_replicas_of_a_star_learn_as_one_process(
    tmp_path: Path, start: Start, synchronization: Synchronization
) -> None:
    losses, _ = train_synchronized(tmp_path, start, synchronization, ITERATIONS, replicas=3)
    assert losses == pytest.approx(train_tiny_replicas(synchronization, 3, ITERATIONS), rel=1e-6)
