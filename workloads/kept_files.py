"""Keep files of the model that a rank trains: gradients, checkpoints, and weights for an evaluation.

::

    <checkpoints>/after-<n>/stage-<s>                   what stage s holds after n iterations
    <snapshots>/after-<n>/replica-<p>/stage-<s>.npz     the weights of stage s of pipeline p after n iterations

Training could begin again with a checkpoint. The replicas of a stage are alike, so that those of the first pipeline
write for all. A checkpoint is complete when it has every stage, each of which is written whole or not at all. What has
no state, such as replayed compute, writes none: it may begin at any iteration.

Snapshots are what a training is evaluated by. Ranks only write them, between two iterations and to this machine's disk,
so that an evaluation costs training the time of one write, and the network nothing. Needs no torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wanbed.workloads.compute.backends.backend import ModelFiles

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
        path = checkpoint_file(Path(self.config.folder), done, self.stage)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.save(path)
        checkpoint_file(Path(self.config.folder), done - KEPT * every, self.stage).unlink(missing_ok=True)


def checkpoint_file(folder: Path, done: int, stage: int) -> Path:
    """Return the file of a stage in the checkpoint after ``done`` iterations."""
    return folder / f"after-{done}" / f"stage-{stage}"


def checkpoint_files(folder: Path, done: int, stages: int) -> tuple[Path, ...]:
    """Return the files of the checkpoint after ``done`` iterations, () if it is not complete."""
    files = tuple(checkpoint_file(folder, done, stage) for stage in range(stages))
    return files if all(file.is_file() for file in files) else ()


def last_restart(done: int, every: int, complete: Callable[[int], bool]) -> int:
    """Return after how many iterations training can begin again: at most ``done``, 0 if there is no checkpoint."""
    return next((number for number in range(done - done % every, 0, -every) if complete(number)), 0)


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
            path = snapshot_file(Path(self.config.folder), iteration + 1, self.pipeline, self.stage)
            path.parent.mkdir(parents=True, exist_ok=True)
            self.save(path)


def snapshot_file(folder: Path, done: int, pipeline: int, stage: int) -> Path:
    """Return the file of a stage of a pipeline in the snapshot after ``done`` iterations."""
    return folder / f"after-{done}" / f"replica-{pipeline}" / f"stage-{stage}.npz"


@dataclass(frozen=True)
class KeptFilesConfig:
    """The files that a rank keeps, each None for none. Only for a back end that trains.

    - ``gradients``: the file for the last iteration's summed gradients.
    - ``checkpoints``: those that the rank writes and begins with. Only for a back end that saves its state.
    - ``snapshots``: the weights for an evaluation.
    """

    gradients: str | None = None
    checkpoints: CheckpointConfig | None = None
    snapshots: SnapshotConfig | None = None


class KeptFiles:
    """Writes the files of one stage of a pipeline in ``iterations``."""

    def __init__(
        self, config: KeptFilesConfig, files: ModelFiles, *, pipeline: int, stage: int, iterations: int
    ) -> None:
        self._config = config
        self._files = files
        self._last = iterations - 1
        self._after: list[Checkpoints | Snapshots] = []
        if config.checkpoints is not None and pipeline == 0:
            self._after.append(Checkpoints(config.checkpoints, stage, files.save_state))
        if config.snapshots is not None:
            self._after.append(Snapshots(config.snapshots, pipeline, stage, files.save_weights))

    def summed(self, iteration: int) -> None:
        """Write the gradients if ``iteration`` is the last one, whose gradients are summed."""
        if self._config.gradients is not None and iteration == self._last:
            self._files.save_gradients(Path(self._config.gradients))

    def finished(self, iteration: int) -> None:
        """Write what is kept of the model after ``iteration``."""
        for each in self._after:
            each.finished(iteration)


def resume(config: KeptFilesConfig, files: ModelFiles) -> None:
    """Begin with the checkpoint of the configuration, if it has one."""
    if config.checkpoints is not None and config.checkpoints.resume:
        files.load_state([Path(path) for path in config.checkpoints.resume])
