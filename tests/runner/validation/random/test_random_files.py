from pathlib import Path

import pytest

from wanbed.ground.strict_model import InputError
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.validation.random.random_files import copy_experiments, write_experiments


def test_each_experiment_is_a_file_that_a_user_can_run(tmp_path: Path) -> None:
    drawn = write_experiments(1, 3, tmp_path)
    assert [each.file.name for each in drawn] == [f"random-1-{number:03d}.yaml" for number in range(3)]
    for each in drawn:
        assert load_experiment(each.file).config_hash == each.experiment.config_hash
        assert f"wanbed simulate {each.file.name}" in each.file.read_text()


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    written = [write_experiments(7, 4, tmp_path / name) for name in ("one", "other")]
    one, other = ([each.file.read_bytes() for each in drawn] for drawn in written)
    assert one == other


def test_fewer_are_the_first_of_more(tmp_path: Path) -> None:
    few, many = write_experiments(1, 2, tmp_path / "few"), write_experiments(1, 5, tmp_path / "many")
    assert [each.file.read_bytes() for each in few] == [each.file.read_bytes() for each in many[:2]]


def test_a_copy_holds_the_named_ones_and_no_others(tmp_path: Path) -> None:
    drawn, kept = write_experiments(1, 4, tmp_path / "runs"), tmp_path / "kept"
    copy_experiments(drawn, ["random-1-001", "random-1-002"], kept)
    copy_experiments(drawn, ["random-1-002", "random-1-003"], kept)
    assert sorted(path.name for path in kept.iterdir()) == ["random-1-002.yaml", "random-1-003.yaml"]


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written to"):
        write_experiments(1, 1, tmp_path / "file")
