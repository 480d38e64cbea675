"""The configuration of an evaluation, as a JSON file. Needs no torch."""

from dataclasses import dataclass
from pathlib import Path

from wanbed.ground.dataclass_json import read_config, write_config
from wanbed.workloads.evaluation.snapshots import SnapshotConfig
from wanbed.workloads.model.gpt_config import GptConfig, bytes_per_element
from wanbed.workloads.model.held_out import HeldOut


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluate every replica in every snapshot of one trial.

    - ``stages``, ``pipelines``: how many files a snapshot has of a replica, and how many replicas.
    - ``text``: the text of which a part was held out, None for synthetic tokens.
    - ``precision``: that of the training.
    - ``device``: cpu or cuda.
    - ``output``: the file that receives the losses.

    Raises ValueError naming the field.
    """

    model: GptConfig
    stages: int
    pipelines: int
    snapshots: SnapshotConfig
    held_out: HeldOut
    precision: str
    device: str
    threads: int
    output: str
    text: str | None = None
    parent_pid: int | None = None

    def __post_init__(self) -> None:
        bytes_per_element(self.precision)
        for name in ("stages", "pipelines", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is below 1")

    def write(self, path: Path) -> None:
        """Write the configuration as JSON."""
        write_config(self, path)


@dataclass(frozen=True)
class ReplicaLoss:
    """The held-out loss of one replica after ``iteration``, counted from 0."""

    iteration: int
    pipeline: int
    loss: float


def read_evaluation_config(path: Path) -> EvaluationConfig:
    """Read a file of ``EvaluationConfig.write``. Raise ValueError with path and field, OSError if it is unreadable."""
    return read_config(EvaluationConfig, path)
