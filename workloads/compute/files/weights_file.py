"""Write the weights of a stage to a file that numpy reads."""

from pathlib import Path

import numpy as np

from wanbed.ground.files.atomic_write import written_whole
from wanbed.workloads.compute.flat_parameters import FlatParameters


def save_weights(path: Path, parameters: FlatParameters) -> None:
    """Write each parameter as the model computes with it, in fp32 and its shape, by its name in the whole model.

    The ``.npz`` file appears whole or not at all.
    """
    stored = {name: parameter.detach().float().cpu().numpy() for name, parameter in parameters.named_weights()}
    with written_whole(path) as partial, partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **stored)
