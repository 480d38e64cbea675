"""Write the weights and the optimizer state of a stage to a file, and read those of a stage from several files.

Names are those of the whole model, so that the stage that reads may be cut otherwise than those that wrote.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

from wanbed.ground.files.atomic_write import written_whole
from wanbed.workloads.compute.flat_parameters import FlatParameters

_STEPS = "steps"


def save_state(path: Path, parameters: FlatParameters) -> None:
    """Write the state after the last step as one ``.npz`` file, whole or not at all."""
    stored = {name: torch.stack(state).cpu().numpy() for name, state in parameters.named_state()}
    with written_whole(path) as partial, partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **stored, **{_STEPS: np.array(parameters.steps)})


def load_state(paths: Sequence[Path], parameters: FlatParameters) -> None:
    """Take the state of each parameter from the file that has it. Raise ValueError if none has."""
    with ExitStack() as opened, torch.no_grad():
        files = [opened.enter_context(np.load(path, allow_pickle=False)) for path in paths]
        for name, state in parameters.named_state():
            stored = next((file[name] for file in files if name in file.files), None)
            if stored is None:
                raise ValueError(f"{paths[0].parent}: the checkpoint has no {name}")
            for part, values in zip(state, torch.from_numpy(stored), strict=True):
                part.copy_(values)
        parameters.restored(int(files[0][_STEPS]))
