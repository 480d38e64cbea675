"""Read why the simulator is off where it is: causes by name, and which experiment each of them explains.

The file is written by hand::

    causes:
      small windows: what the cause is, and why it is left
    experiments:
      random-1-017: small windows
"""

from pathlib import Path

from pydantic import Field

from ground.shown_text import one_line
from ground.strict_model import InputError, StrictModel, parse_model
from ground.yaml_document import read_document

EXPLANATIONS_FILE = "explanations.yaml"


class Explanations(StrictModel):
    """Causes by name, and the name of the cause of each experiment that has one."""

    causes: dict[str, str] = Field(default_factory=dict)
    experiments: dict[str, str] = Field(default_factory=dict)


def read_explanations(folder: Path) -> Explanations:
    """Return the content of that folder's file; nothing in it where there is none.

    Raises InputError, one line with file, field and remedy.
    """
    path = folder / EXPLANATIONS_FILE
    if not path.is_file():
        return Explanations()
    here = one_line(str(path))
    explanations = parse_model(Explanations, read_document(path), here)
    for experiment, cause in explanations.experiments.items():
        if cause not in explanations.causes:
            there = ", ".join(map(one_line, explanations.causes)) or "none"
            raise InputError(f"{here}: experiments.{experiment}: {cause!r} is not among the causes ({there}): add it")
    return explanations
