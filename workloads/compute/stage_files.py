"""Files of what a stage has computed: its gradients, its weights, and its state, from which training begins again.

Names are those of the whole model, so that the stage that reads a state may be cut otherwise than those that wrote.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from wanbed.ground.files import written_whole
from wanbed.workloads.compute.backends.backend import ModelFiles
from wanbed.workloads.compute.flat_parameters import FlatParameters


def save_gradients(path: Path, gradients: Mapping[str, npt.NDArray[np.float32]]) -> None:
    """Write each parameter's gradient, in fp32 under its name in the whole model, as one ``.npz`` file."""
    np.savez(path, allow_pickle=False, **gradients)


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


def save_weights(path: Path, parameters: FlatParameters) -> None:
    """Write each parameter as the model computes with it, in fp32 and its shape, by its name in the whole model.

    The ``.npz`` file appears whole or not at all.
    """
    stored = {name: parameter.detach().float().cpu().numpy() for name, parameter in parameters.named_weights()}
    with written_whole(path) as partial, partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **stored)


def model_files(
    parameters: FlatParameters, named_gradients: Callable[[], Mapping[str, npt.NDArray[np.float32]]]
) -> ModelFiles:
    """Return what writes the files of a stage. ``named_gradients`` returns what ``save_gradients`` writes."""
    return ModelFiles(
        save_gradients=lambda path: save_gradients(path, named_gradients()),
        save_state=lambda path: save_state(path, parameters),
        load_state=lambda paths: load_state(paths, parameters),
        save_weights=lambda path: save_weights(path, parameters),
    )
