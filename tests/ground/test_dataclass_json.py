from dataclasses import dataclass
from pathlib import Path

import pytest

from wanbed.ground.dataclass_json import read_config, write_config
from wanbed.workloads.gpt.gpt_config import Architecture, GptConfig


@dataclass(frozen=True)
class Named:
    key: tuple[str, int]
    pairs: tuple[tuple[int, int], ...] = ()


def test_tuples_of_one_length_come_back_each_element_as_what_it_was(tmp_path: Path) -> None:
    plan = Named(("forward", 3), ((1, 2), (3, 4)))
    write_config(plan, tmp_path / "plan.json")
    assert read_config(Named, tmp_path / "plan.json") == plan


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ('{"key": ["forward"]}', "key: expected 2 values, found 1"),
        ('{"key": ["forward", "3"]}', "key.1: expected int, found '3'"),
        ('{"key": ["forward", 3], "pairs": [[1, 2], [3]]}', "pairs.1: expected 2 values, found 1"),
    ],
)
def test_a_tuple_that_is_not_as_declared_is_refused_by_its_place(tmp_path: Path, written: str, fault: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(written)
    with pytest.raises(ValueError, match="^" + str(path) + ": " + fault.replace(".", r"\.") + "$"):
        read_config(Named, path)


def test_the_model_comes_back_as_it_was(tmp_path: Path) -> None:
    for architecture in Architecture:
        model = GptConfig(2, 8, 4, 2, 11, architecture, kv_heads=1, feed_forward=20, tied_head=True)
        write_config(model, tmp_path / "model.json")
        assert read_config(GptConfig, tmp_path / "model.json") == model
