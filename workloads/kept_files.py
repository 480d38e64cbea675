"""What a rank keeps of the model that it trains: gradients, checkpoints, and weights for an evaluation."""

from dataclasses import dataclass
from pathlib import Path

from wanbed.workloads.checkpoints import CheckpointConfig, Checkpoints
from wanbed.workloads.compute.backends.backend import ModelFiles
from wanbed.workloads.evaluation.snapshots import SnapshotConfig, Snapshots


@dataclass(frozen=True)
class KeptFilesConfig:
    """What a rank keeps, each None for nothing. Only for a back end that trains.

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
        """Write the gradients if ``iteration`` is the last one, whose gradients are summed but not applied."""
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
