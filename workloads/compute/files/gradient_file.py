"""Write the gradients of a stage to a file that numpy reads."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt


def save_gradients(path: Path, gradients: Mapping[str, npt.NDArray[np.float32]]) -> None:
    """Write each parameter's gradient, in fp32 under its name in the whole model, as one ``.npz`` file."""
    np.savez(path, allow_pickle=False, **gradients)
