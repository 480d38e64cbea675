"""The checkpoints of a training: a folder for each iteration after which it could begin again.

::

    <checkpoints>/after-<n>/stage-<s>     what stage s holds after n iterations; written whole or not at all

The replicas of a stage are alike, so that those of the first pipeline write for all. A checkpoint is complete when it
has every stage. What has no state, such as replayed compute, writes none: it may begin at any iteration.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

KEPT = 3
"""The last checkpoints that are kept. Stages are up to one iteration apart, so that the newest may lack some."""


@dataclass(frozen=True)
class CheckpointConfig:
    """The checkpoints that a rank writes and begins with.

    ``folder`` has those that it writes after every ``every`` iterations, of which the first is number 0. ``resume`` are
    the files of all stages that it begins with; () to begin anew. Raise ValueError naming the field.
    """

    folder: str
    every: int
    resume: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every: {self.every} is below 1")


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one stage in a rank. ``save`` writes its state to a file."""

    config: CheckpointConfig
    stage: int
    save: Callable[[Path], None]

    def finished(self, iteration: int) -> None:
        """Write the checkpoint after ``iteration`` if there is to be one, and remove this stage's oldest."""
        done, every = iteration + 1, self.config.every
        if done % every:
            return
        path = stage_file(Path(self.config.folder), done, self.stage)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.save(path)
        stage_file(Path(self.config.folder), done - KEPT * every, self.stage).unlink(missing_ok=True)


def stage_file(folder: Path, done: int, stage: int) -> Path:
    """Return the file of a stage in the checkpoint after ``done`` iterations."""
    return folder / f"after-{done}" / f"stage-{stage}"


def checkpoint_files(folder: Path, done: int, stages: int) -> tuple[Path, ...]:
    """Return the files of the checkpoint after ``done`` iterations, () if it is not complete."""
    files = tuple(stage_file(folder, done, stage) for stage in range(stages))
    return files if all(file.is_file() for file in files) else ()


def last_restart(done: int, every: int, complete: Callable[[int], bool]) -> int:
    """Return after how many iterations training can begin again: at most ``done``, 0 if there is no checkpoint."""
    return next((number for number in range(done - done % every, 0, -every) if complete(number)), 0)
