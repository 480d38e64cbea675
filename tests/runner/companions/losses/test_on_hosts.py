"""The losses of a trial: those that its replicas logged, and those of its evaluation."""

import math
from pathlib import Path

import pytest

from wanbed.results.records.schema import HELD_OUT, TRAINING, ReplicaLossRow
from wanbed.results.records.span_log import RankPlace, SpanLogContents
from wanbed.runner.companions.losses.on_hosts import largest_error, learning_facts, loss_rows, mean_losses
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.workloads.evaluation import ReplicaLoss
from wanbed.workloads.gpt.learnt_text import digest


def log(rank: int, pipeline: int, *losses: tuple[int, float]) -> SpanLogContents:
    return SpanLogContents(RankPlace(rank, "east-0", "east", 0, pipeline, rank % 2), (), True, losses)


LOGS = [log(0, 0), log(1, 0, (1, 2.5), (0, 3.0)), log(2, 1), log(3, 1, (0, 2.0), (1, 1.5))]


def test_the_loss_of_an_iteration_is_the_mean_over_the_replicas_last_stages() -> None:
    assert mean_losses(loss_rows(LOGS, ())) == pytest.approx([2.5, 2.0])


def test_every_replica_keeps_its_own_loss_and_an_evaluation_is_no_training() -> None:
    rows = loss_rows(LOGS, [ReplicaLoss(1, 0, 2.75)])
    assert rows == [
        ReplicaLossRow(0, TRAINING, 0, 3.0),
        ReplicaLossRow(0, TRAINING, 1, 2.0),
        ReplicaLossRow(1, TRAINING, 0, 2.5),
        ReplicaLossRow(1, TRAINING, 1, 1.5),
        ReplicaLossRow(1, HELD_OUT, 0, 2.75),
    ]
    assert mean_losses(rows) == pytest.approx([2.5, 2.0])


def test_where_nothing_is_learnt_there_is_no_loss() -> None:
    assert mean_losses(loss_rows([log(0, 0), log(1, 0)], ())) == []


def test_a_trial_records_its_seed_and_its_text_and_no_number_that_json_lacks() -> None:
    (point,) = parse_experiment(
        {
            "topology": {"datacenters": [{"name": "east", "hosts": 2}]},
            "model": {"layers": 2, "hidden": 16, "context": 16, "heads": 2, "vocabulary": 64},
            "compute": {"kind": "torch"},
            "training": {"stages": 1, "pipelines": 2, "text": "python-topics", "vary_seed": True},
            "seed": 7,
            "variants": [{"name": "dp", "schedule": "dp"}],
        },
        "test",
        Path(),
    ).points()
    variant = point.variants[0].in_repeat(2)
    facts = learning_facts(point, variant, loss_rows([log(0, 0, (0, 3.0), (1, math.nan))], ()))
    assert facts == {
        "losses": [3.0, None],
        "learning_seed": 9,
        "text": {"name": "python-topics", "sha256": digest("python-topics")},
    }
    assert learning_facts(point, variant, ()) == {"losses": []}


def test_a_later_nan_is_not_hidden_by_losses_that_agree() -> None:
    assert largest_error([2.0, 1.01], [2.0, 1.0]) == pytest.approx(0.01)
    assert math.isnan(largest_error([2.0, math.nan], [2.0, 1.0]))
    assert math.isnan(largest_error([math.nan, 1.0], [2.0, 1.0]))
    with pytest.raises(ValueError, match="zip"):
        largest_error([2.0], [2.0, 1.0])
