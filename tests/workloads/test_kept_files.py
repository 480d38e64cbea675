"""A checkpoint is one that every stage has written; training begins again at the last one."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.kept_files import (
    KEPT,
    CheckpointConfig,
    Checkpoints,
    checkpoint_file,
    checkpoint_files,
    last_restart,
)


def checkpoints(folder: Path, stage: int, every: int = 1) -> Checkpoints:
    return Checkpoints(CheckpointConfig(str(folder), every), stage, lambda path: path.write_text("state") and None)


def test_a_checkpoint_is_complete_once_all_stages_have_written_it(tmp_path: Path) -> None:
    checkpoints(tmp_path, 0).finished(4)
    assert checkpoint_files(tmp_path, 5, 2) == ()
    checkpoints(tmp_path, 1).finished(4)
    assert checkpoint_files(tmp_path, 5, 2) == (checkpoint_file(tmp_path, 5, 0), checkpoint_file(tmp_path, 5, 1))


def test_only_every_so_many_iterations_one_is_written_and_the_last_few_are_kept(tmp_path: Path) -> None:
    stage = checkpoints(tmp_path, 0, every=2)
    for iteration in range(20):
        stage.finished(iteration)
    found = sorted(int(file.parent.name.removeprefix("after-")) for file in tmp_path.glob("*/stage-0"))
    assert found == [20 - 2 * back for back in reversed(range(KEPT))]


@given(st.integers(0, 50), st.integers(1, 10), st.sets(st.integers(1, 50)))
def test_training_begins_again_at_the_last_complete_checkpoint_that_all_have_reached(
    done: int, every: int, complete: set[int]
) -> None:
    fitting = [number for number in complete if number <= done and number % every == 0]
    assert last_restart(done, every, complete.__contains__) == max(fitting, default=0)
