"""Find the modules of schedules that an experiment names by class, and let the processes of ranks find them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from wanbed.api.experiment import CheckedExperiment
from wanbed.ground.errors import InputError
from wanbed.runner.experiment.experiment_spec import ExperimentSpec

_THIS_PROGRAM = "__main__"
_PATH = "PYTHONPATH"


def _module_names(spec: ExperimentSpec) -> list[str]:
    """Return the module of each variant's schedule, "" for one that is given by its name."""
    return [module if separator else "" for module, separator, _ in (v.schedule.partition(":") for v in spec.variants)]


def in_this_program(spec: ExperimentSpec) -> bool:
    """Return whether a schedule is defined in the script or notebook itself, where other processes cannot find it."""
    return _THIS_PROGRAM in _module_names(spec)


def check_importable(checked: CheckedExperiment) -> None:
    """Raise InputError if a schedule is defined in the script or notebook itself."""
    for position, module in enumerate(_module_names(checked.spec)):
        if module == _THIS_PROGRAM:
            name = checked.spec.variants[position].schedule.partition(":")[2]
            raise InputError(
                f"{checked.document.source}: variants.{position}.schedule: ranks cannot import {name} from this script "
                "or notebook: move it to a module, and import it from there"
            )


@contextmanager
def importable_by_ranks(spec: ExperimentSpec) -> Iterator[None]:
    """Put the folders of the schedules' modules on PYTHONPATH, which the processes of ranks inherit."""
    folders = dict.fromkeys(folder for folder in map(_folder, _module_names(spec)) if folder is not None)
    before = os.environ.get(_PATH)
    if folders:
        os.environ[_PATH] = os.pathsep.join([*folders, *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_PATH, None)
        else:
            os.environ[_PATH] = before


def _folder(module: str) -> str | None:
    """Return the folder that a module's top package is imported from; None for one that is not found, or built in."""
    found = find_spec(module.partition(".")[0]) if module else None
    if found is None or found.origin is None or not found.has_location:
        return None
    file = Path(found.origin).resolve()
    return str(file.parents[1] if found.submodule_search_locations is not None else file.parent)
