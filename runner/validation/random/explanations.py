"""Read the explanations of the simulator's errors: causes by name, and the cause of each explained experiment.

The file is written by hand::

    causes:
      small windows: what the cause is, and why it is left
    experiments:
      random-1-017: small windows
"""

from pathlib import Path

from pydantic import Field

from wanbed.ground.strict_model import InputError, StrictModel, parse_model
from wanbed.ground.yaml_document import read_document

EXPLANATIONS_FILE = "explanations.yaml"


class Explanations(StrictModel):
    """Causes by name, and the name of the cause for each explained experiment."""

    causes: dict[str, str] = Field(default_factory=dict)
    experiments: dict[str, str] = Field(default_factory=dict)


def read_explanations(folder: Path) -> Explanations:
    """Return the explanations in that folder, empty if it has no file for them.

    Raise InputError, one line with file, field and remedy, for an invalid file.
    """
    path = folder / EXPLANATIONS_FILE
    if not path.is_file():
        return Explanations()
    here = str(path)
    explanations = parse_model(Explanations, read_document(path), here)
    for experiment, cause in explanations.experiments.items():
        if cause not in explanations.causes:
            known = ", ".join(explanations.causes) or "none"
            raise InputError(f"{here}: experiments.{experiment}: {cause!r} is not among the causes ({known}): add it")
    return explanations
