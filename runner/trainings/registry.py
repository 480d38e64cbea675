"""List the trainings that are no pipelines. Each is a folder beside this module, under the name of its ``schedule``."""

from importlib import import_module
from types import ModuleType

PROGRAM, TRACE = "program", "trace"
"""The schedules of a user's own program, and of ``compute.trace``. The experiment file need not write them."""

TRAININGS: dict[str, str] = {
    PROGRAM: "wanbed.runner.trainings.program",
    TRACE: "wanbed.runner.trainings.trace",
}
"""The folder of each, by the name of its schedule.

In ``resolution`` of the folder ``resolve(written)`` returns the resolved variant. In ``simulation`` ``simulate(network,
iterations, pulse)`` returns a ``Simulation``; a training without that module is refused there. In ``on_hosts``
``train(trial, begin, look)`` runs its processes until they have ended, and returns what they have left.
"""


def named_trainings() -> tuple[str, ...]:
    """Return the names that an editor and a refusal offer."""
    return tuple(name for name in TRAININGS if name not in {PROGRAM, TRACE})


def training_layer(schedule: str, layer: str) -> ModuleType | None:
    """Return the module ``layer`` of a training's folder, None for a pipeline's schedule."""
    folder = TRAININGS.get(schedule)
    return None if folder is None else import_module(f"{folder}.{layer}")
