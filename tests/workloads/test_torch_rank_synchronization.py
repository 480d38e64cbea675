"""Replicas that train alone and synchronise seldom, as processes over loopback, against DiLoCo in one process."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.workloads.loopback_ranks import Start
from tests.support.workloads.reference_local_updates import train_tiny_replicas
from tests.support.workloads.synchronized_ranks import (
    REPLICAS,
    lose_and_start_again,
    star_configs,
    train_synchronized,
)
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.kept_files import KeptFilesConfig, SnapshotConfig, snapshot_file
from wanbed.workloads.synchronization.synchronization import SumTopology, Synchronization, cut_fragments

ITERATIONS = 6
SMALL = GptConfig(layers=1, hidden=32, context=32, heads=2, vocabulary=256)


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
        Synchronization(4, topology=SumTopology.STAR, quorum=2),
        Synchronization(4, fragments=2, delay=1, topology=SumTopology.STAR, quorum=2),
    ],
    ids=["diloco", "streaming"],
)
def test_a_replica_that_comes_back_has_the_weights_of_the_others_to_the_bit(
    tmp_path: Path, start: Start, synchronization: Synchronization
) -> None:
    iterations, every = 60, 10
    snapshots = SnapshotConfig(str(tmp_path / "weights"), every, iterations)
    plans = [
        replace(plan, kept=KeptFilesConfig(snapshots=snapshots))
        for plan in star_configs(tmp_path, synchronization, iterations, 3, SMALL)
    ]
    joined = lose_and_start_again(plans, start)
    assert joined < iterations - 2 * every
    # Right after the average of a fragment its parameters are the global ones; the others have gone on alone since.
    averaged = set()
    for after in snapshots.after:
        fragment = synchronization.fragment_applied(after - 1)
        if after > joined and fragment is not None:
            averaged.add(fragment)
            part = slice(*cut_fragments(SMALL.parameters(0, 1), synchronization.fragments)[fragment])
            first, *others = (flat_weights(tmp_path / "weights", after, replica)[part] for replica in range(3))
            assert all(np.array_equal(first, other) for other in others)
    assert averaged == set(range(synchronization.fragments))


def flat_weights(folder: Path, after: int, replica: int) -> npt.NDArray[np.float32]:
    with np.load(snapshot_file(folder, after, replica, 0)) as weights:
        return np.concatenate([weights[name].ravel() for name in weights.files])


@pytest.mark.parametrize(
    "synchronization",
    [
        Synchronization(2, topology=SumTopology.STAR),
        Synchronization(4, fragments=2, delay=1, alpha=0.5, topology=SumTopology.STAR, quorum=3),
    ],
    ids=["diloco", "streaming with a quorum of all"],
)
def test_replicas_of_a_star_learn_as_one_process(
    tmp_path: Path, start: Start, synchronization: Synchronization
) -> None:
    losses, _ = train_synchronized(tmp_path, start, synchronization, ITERATIONS, replicas=3)
    assert losses == pytest.approx(train_tiny_replicas(synchronization, 3, ITERATIONS), rel=1e-6)
