"""Evaluate a trial's snapshots: ``python -m wanbed.workloads.evaluation CONFIG.json``, after the training.

The held-out loss of a replica is

    mean over the held-out sequences of the mean cross entropy of their next tokens, in nats

computed by the whole model in the precision of training. Every replica of every snapshot is evaluated on the same
sequences. The losses are written as one JSON list of ``ReplicaLoss``. Only the process itself imports torch.
"""

import json
import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from wanbed.ground.dataclass_json import read_config, write_config
from wanbed.ground.files import write_whole
from wanbed.workloads.gpt.gpt_config import GptConfig, bytes_per_element
from wanbed.workloads.gpt.learnt_text import HeldOut
from wanbed.workloads.host_process import die_with_parent, run_configured
from wanbed.workloads.kept_files import SnapshotConfig, snapshot_file


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


def evaluated(config: EvaluationConfig) -> list[ReplicaLoss]:
    """Return the held-out loss of every replica in every snapshot. Raise OSError or ValueError if one is not whole.

    Replicas with equal weights, as synchronous training leaves them, are evaluated once.
    """
    import torch  # noqa: PLC0415 - for usage errors nobody waits seconds
    from torch import Tensor  # noqa: PLC0415

    from wanbed.workloads.gpt.gpt_stage import DTYPES, GptStage, build_stage, language_loss  # noqa: PLC0415
    from wanbed.workloads.gpt.tokens import TokenSource  # noqa: PLC0415

    torch.set_num_threads(config.threads)
    source = TokenSource(config.model, 0, config.text, config.held_out)
    batches = [
        tuple(part.to(config.device) for part in source.evaluation_batch(number))
        for number in range(config.held_out.sequences)
    ]
    model: GptStage = build_stage(config.model, 0, 1, 0, DTYPES[config.precision]).to(config.device)
    known: dict[bytes, float] = {}

    @torch.no_grad()
    def loss_of(weights: dict[str, Tensor]) -> float:
        model.load_state_dict(weights)
        return math.fsum(float(language_loss(model(inputs), targets)) for inputs, targets in batches) / len(batches)

    found = []
    for done in config.snapshots.after:
        for pipeline in range(config.pipelines):
            arrays = _weights(config, done, pipeline)
            hashed = sha256()
            for name in sorted(arrays):
                hashed.update(arrays[name].tobytes())
            key = hashed.digest()
            if key not in known:
                known[key] = loss_of({name: torch.from_numpy(array) for name, array in arrays.items()})
            found.append(ReplicaLoss(done - 1, pipeline, known[key]))
    return found


def _weights(
    config: EvaluationConfig, done: int, pipeline: int
) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    folder = Path(config.snapshots.folder)
    with ExitStack() as opened:
        files = [
            opened.enter_context(np.load(snapshot_file(folder, done, pipeline, stage), allow_pickle=False))
            for stage in range(config.stages)
        ]
        return {name: file[name] for file in files for name in file.files}


def evaluate(config: EvaluationConfig) -> None:
    """Evaluate, and write the losses to ``config.output``."""
    if config.parent_pid is not None:
        die_with_parent(config.parent_pid)
    write_whole(Path(config.output), json.dumps([asdict(each) for each in evaluated(config)]))


def read_losses(path: Path) -> list[ReplicaLoss]:
    """Read the losses that ``evaluate`` has written."""
    return [ReplicaLoss(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def main(arguments: Sequence[str]) -> int:
    """Run the evaluation of the file named on the command line. Return the exit status, 0 or 1."""
    return run_configured(
        arguments,
        module="wanbed.workloads.evaluation",
        name="wanbed evaluation",
        read=read_evaluation_config,
        run=evaluate,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
