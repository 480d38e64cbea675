"""What an experiment file says on learning is checked before anything runs."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.runner.companions.losses.resolution import held_out, learning_seed
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.workloads.gpt.learnt_text import HeldOut


def point(training: dict[str, Any] | None = None, **sections: Any) -> SweepPoint:
    return parse_experiment(
        {
            "topology": {"datacenters": [{"name": "east", "hosts": 2}]},
            "model": {"layers": 2, "hidden": 64, "context": 16, "heads": 2, "vocabulary": 64},
            "compute": {"kind": "torch"},
            "training": {"stages": 1, "pipelines": 2, "iterations": 20, **(training or {})},
            "variants": [{"name": "dp", "schedule": "dp"}],
            **sections,
        },
        "test",
        Path(),
    ).points()[0]


def test_a_corpus_is_a_name_and_a_file_a_path(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_bytes(bytes(1000))
    assert point({"text": "python-topics"}).text == "python-topics"
    assert point({"text": str(tmp_path / "own.txt")}).text == str(tmp_path / "own.txt")
    assert point().text is None


def test_nothing_is_held_out_unless_something_is_evaluated() -> None:
    assert held_out(point({"text": "python-topics"}).spec.training) is None
    evaluated = {"text": "python-topics", "evaluate_every": 5, "held_out": "20%", "held_out_sequences": 8}
    assert held_out(point(evaluated).spec.training) == HeldOut(0.2, 8)


def test_repeats_learn_with_one_seed_unless_it_varies() -> None:
    same, varied = point(seed=5).spec, point({"vary_seed": True}, seed=5).spec
    assert [learning_seed(same, repeat) for repeat in range(3)] == [5, 5, 5]
    assert [learning_seed(varied, repeat) for repeat in range(3)] == [5, 6, 7]


def test_the_new_fields_leave_the_hash_of_files_without_them_as_it_was() -> None:
    written = point().spec.training.model_dump(mode="json")
    assert not {"evaluate_every", "held_out", "held_out_sequences", "vary_seed"} & written.keys()


REPLAY = {"compute": {"forward": "1ms", "backward": "1ms"}}


@pytest.mark.parametrize(
    ("training", "sections", "refusal"),
    [
        ({"evaluate_every": 5}, REPLAY, "training.evaluate_every: .* learns nothing"),
        ({"vary_seed": True}, REPLAY, "training.vary_seed: .* learns nothing"),
        ({"text": "python-topic"}, {}, "python-topic is no file: give the path of a text, or one of python-topics"),
        ({"held_out": "20%"}, {}, "training.held_out: nothing is evaluated"),
        ({"held_out_sequences": 4}, {}, "training.held_out_sequences: nothing is evaluated"),
        ({"evaluate_every": 5, "held_out": "20%"}, {}, "training.held_out: synthetic tokens"),
        ({"evaluate_every": 21}, {}, "training.evaluate_every: 21, of 20 iterations"),
        ({"evaluate_every": 5}, {"engine": "rack"}, "leave engine or evaluate_every out"),
        ({"evaluate_every": 5}, {"fail": [{"host": "east-1", "at": "1s"}]}, "leave fail or evaluate_every out"),
        ({"evaluate_every": 5, "text": "python-topics", "held_out": "0.001%"}, {}, "training.text: .* held out"),
    ],
)
def test_what_has_nothing_to_work_on_is_refused_in_one_line(
    training: dict[str, Any], sections: dict[str, Any], refusal: str
) -> None:
    assert re.search(refusal, refused(lambda: point(training, **sections)))


def test_more_weights_than_a_disk_should_hold_are_refused() -> None:
    model = {"layers": 12, "hidden": 2048, "context": 16, "heads": 2, "vocabulary": 64}
    with pytest.raises(InputError, match=r"training\.evaluate_every: 20 evaluations keep .* give a larger number"):
        point({"evaluate_every": 1}, model=model)
