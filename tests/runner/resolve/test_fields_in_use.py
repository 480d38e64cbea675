"""What is written for a training that is no pipeline is used by it, or refused."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.refused import refused
from tests.support.runner.chakra_traces import computation, write_trace
from wanbed.ground.strict_model import StrictModel
from wanbed.runner.experiment.compute_spec import ComputeSpec
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.training_spec import TrainingSpec
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.experiment.variant_spec import VariantSpec
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.trainings.registry import TRAININGS

PROGRAM = {"name": "mine", "program": {"command": ["python", "train.py"]}}


def document(*variants: dict[str, Any], **others: Any) -> dict[str, Any]:
    topology = {"datacenters": [{"name": "a", "hosts": 1}, {"name": "b", "hosts": 1}], "wan": {"latency": "1ms"}}
    return {"topology": topology, "variants": list(variants), **others}


def refusal(folder: Path, *variants: dict[str, Any], **others: Any) -> str:
    return refused(lambda: parse_experiment(document(*variants, **others), "exp.yaml", folder))


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("training", "stages", 2),
        ("training", "pipelines", 2),
        ("training", "microbatches", 4),
        ("training", "memory_bound", 4),
        ("training", "virtual_stages", 2),
        ("training", "precision", "fp32"),
        ("training", "learning_rate", 0.1),
        ("compute", "forward", "20ms"),
        ("compute", "activation", "1MiB"),
        ("compute", "profile", "a100"),
    ],
)
def test_a_field_that_no_variant_uses_is_refused(tmp_path: Path, section: str, name: str, value: Any) -> None:
    line = f"exp.yaml: {section}.{name}: not used by a program: leave {name} out"
    assert refusal(tmp_path, PROGRAM, **{section: {name: value}}) == line


@pytest.mark.parametrize("training", [{"text": "python-topics"}, {"evaluate_every": 1}, {"vary_seed": True}])
def test_nothing_is_learnt_without_a_variant_that_learns(tmp_path: Path, training: dict[str, Any]) -> None:
    others = {"model": "gpt-a", "compute": {"kind": "torch"}, "training": training}
    assert f"training.{next(iter(training))}: not used by a program" in refusal(tmp_path, PROGRAM, **others)


def test_a_field_that_one_variant_uses_is_taken(tmp_path: Path) -> None:
    gpipe = {"name": "gpipe", "schedule": "gpipe"}
    common = {"training": {"stages": 2, "microbatches": 4}, "compute": {"forward": "20ms", "activation": "1MiB"}}
    assert parse_experiment(document(PROGRAM, gpipe, **common), "exp.yaml", tmp_path).points()
    assert "variants.0.placement: a program decides that itself" in refusal(
        tmp_path, {**PROGRAM, "placement": ["b", "a"]}, gpipe, **common
    )


def test_all_kinds_that_do_not_use_a_field_are_named(tmp_path: Path) -> None:
    write_trace(tmp_path / "t", {rank: [computation(0, 9)] for rank in range(2)})
    replay = {"name": "replay", "schedule": "trace"}
    assert refusal(tmp_path, PROGRAM, replay, compute={"trace": "t"}, training={"precision": "fp32"}) == (
        "exp.yaml: training.precision: not used by a program and a trace: leave precision out"
    )


@pytest.mark.parametrize("others", [{}, {"compute": {"kind": "torch", "device": "cpu"}}])
def test_a_document_with_every_default_filled_in_is_read_again(tmp_path: Path, others: dict[str, Any]) -> None:
    experiment = parse_experiment(document(PROGRAM, **others), "exp.yaml", tmp_path)
    assert parse_experiment(experiment.document(), "exp.yaml", tmp_path) == experiment


def known_paths(section: type[StrictModel], where: str) -> set[str]:
    return {f"{where}{field.alias or name}" for name, field in section.model_fields.items()}


def test_trainings_name_fields_that_there_are() -> None:
    sections = {"training.": TrainingSpec, "compute.": ComputeSpec, "transport.": TransportSpec, "": VariantSpec}
    paths = set().union(*(known_paths(section, where) for where, section in sections.items()))
    named = {path for training in TRAININGS.values() for path in training.uses}
    assert named <= paths | set(ExperimentSpec.model_fields)
