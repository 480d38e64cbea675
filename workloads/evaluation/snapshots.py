"""The weights that a training keeps for its evaluation: a folder for each iteration after which it is evaluated.

::

    <snapshots>/after-<n>/replica-<p>/stage-<s>.npz     the weights of stage s of pipeline p after n iterations

Ranks only write them, between two iterations and to this machine's disk. So an evaluation costs training the time of
one write, and the network nothing. Needs no torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MAX_SNAPSHOT_BYTES = 8 * 2**30
"""The most bytes that the snapshots of one trial may take."""


@dataclass(frozen=True)
class SnapshotConfig:
    """The snapshots that a rank writes into ``folder``: after every ``every`` iterations, and after the last one.

    Raises ValueError naming the field.
    """

    folder: str
    every: int
    iterations: int

    def __post_init__(self) -> None:
        for name in ("every", "iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is below 1")

    @property
    def after(self) -> tuple[int, ...]:
        """After how many iterations there is a snapshot."""
        return evaluated_after(self.iterations, self.every)


def evaluated_after(iterations: int, every: int) -> tuple[int, ...]:
    """Return after how many of ``iterations`` a training is evaluated: every ``every``, and all."""
    return tuple(dict.fromkeys((*range(every, iterations + 1, every), iterations)))


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of one rank. ``save`` writes its weights to a file."""

    config: SnapshotConfig
    pipeline: int
    stage: int
    save: Callable[[Path], None]

    def finished(self, iteration: int) -> None:
        """Write the snapshot after ``iteration``, counted from 0, if there is to be one."""
        if iteration + 1 in self.config.after:
            path = stage_file(Path(self.config.folder), iteration + 1, self.pipeline, self.stage)
            path.parent.mkdir(parents=True, exist_ok=True)
            self.save(path)


def stage_file(folder: Path, done: int, pipeline: int, stage: int) -> Path:
    """Return the file of a stage of a pipeline in the snapshot after ``done`` iterations."""
    return folder / f"after-{done}" / f"replica-{pipeline}" / f"stage-{stage}.npz"
