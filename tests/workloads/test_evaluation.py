"""What a training keeps of its weights is evaluated after it, by the whole model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from wanbed.workloads.compute.flat_parameters import FlatParameters
from wanbed.workloads.compute.stage_files import save_weights
from wanbed.workloads.evaluation import (
    EvaluationConfig,
    ReplicaLoss,
    evaluated,
    main,
    read_evaluation_config,
    read_losses,
)
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.gpt_stage import DTYPES, build_stage, language_loss
from wanbed.workloads.gpt.learnt_text import PYTHON_TOPICS, HeldOut
from wanbed.workloads.gpt.tokens import TokenSource
from wanbed.workloads.kept_files import SnapshotConfig, Snapshots, evaluated_after, snapshot_file

MODEL = GptConfig(layers=2, hidden=16, context=12, heads=2, vocabulary=256)

STAGES = 2


@pytest.fixture
def config(tmp_path: Path) -> EvaluationConfig:
    snapshots = SnapshotConfig(str(tmp_path / "snapshots"), every=2, iterations=3)
    return EvaluationConfig(
        MODEL, STAGES, 2, snapshots, HeldOut(sequences=3), "fp32", "cpu", 1, str(tmp_path / "losses"), PYTHON_TOPICS
    )


def keep(config: EvaluationConfig, seeds: dict[int, int]) -> None:
    """Keep the initial weights of ``seeds[pipeline]``, plus the iteration, as ranks do."""
    for pipeline, seed in seeds.items():
        for stage in range(STAGES):
            for iteration in range(config.snapshots.iterations):
                module = build_stage(MODEL, stage, STAGES, seed + iteration, DTYPES[config.precision])
                parameters = FlatParameters(module, 0.1)
                Snapshots(
                    config.snapshots, pipeline, stage, lambda path, kept=parameters: save_weights(path, kept)
                ).finished(iteration)


def loss_of(seed: int, config: EvaluationConfig) -> float:
    source = TokenSource(MODEL, 99, config.text, config.held_out)
    whole = build_stage(MODEL, 0, 1, seed, DTYPES[config.precision])
    with torch.no_grad():
        losses = [language_loss(whole(x), y) for x, y in map(source.evaluation_batch, range(3))]
    return float(torch.stack(losses).double().mean())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_replica_in_every_snapshot_has_the_loss_of_its_whole_model(
    config: EvaluationConfig, precision: str
) -> None:
    config = replace(config, precision=precision)
    keep(config, {0: 5, 1: 50})
    expected = [(k, p, seed + k) for k in (1, 2) for p, seed in ((0, 5), (1, 50))]
    found = evaluated(config)
    assert [(each.iteration, each.pipeline) for each in found] == [(k, p) for k, p, _ in expected]
    assert [each.loss for each in found] == pytest.approx([loss_of(seed, config) for *_, seed in expected], rel=1e-6)


def test_replicas_that_are_alike_have_the_same_loss(config: EvaluationConfig) -> None:
    keep(config, {0: 5, 1: 5})
    losses = evaluated(config)
    assert losses[0].loss == losses[1].loss != losses[2].loss


def test_the_process_reads_its_file_and_writes_the_losses(config: EvaluationConfig, tmp_path: Path) -> None:
    keep(config, {0: 5, 1: 6})
    config.write(tmp_path / "config.json")
    assert read_evaluation_config(tmp_path / "config.json") == config
    assert main([str(tmp_path / "config.json")]) == 0
    assert read_losses(Path(config.output)) == evaluated(config)


def test_a_snapshot_that_is_not_whole_ends_the_process_with_one_line(
    config: EvaluationConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(config, {0: 5, 1: 6})
    snapshot_file(Path(config.snapshots.folder), 2, 1, 1).unlink()
    config.write(tmp_path / "config.json")
    assert main([str(tmp_path / "config.json")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert not Path(config.output).exists()


def test_a_training_is_evaluated_every_so_often_and_at_its_end() -> None:
    assert evaluated_after(10, 4) == (4, 8, 10)
    assert evaluated_after(8, 4) == (4, 8)
    assert evaluated_after(3, 3) == (3,)


@pytest.mark.parametrize("field", ["stages", "pipelines", "threads"])
def test_a_configuration_that_cannot_be_is_refused(config: EvaluationConfig, field: str) -> None:
    with pytest.raises(ValueError, match=f"{field}: 0 is below 1"):
        replace(config, **{field: 0})
    with pytest.raises(ValueError, match="every: 0 is below 1"):
        SnapshotConfig("x", 0, 1)


def test_losses_are_written_as_plain_json(tmp_path: Path) -> None:
    (tmp_path / "losses").write_text(json.dumps([{"iteration": 1, "pipeline": 0, "loss": 2.5}]))
    assert read_losses(tmp_path / "losses") == [ReplicaLoss(1, 0, 2.5)]
