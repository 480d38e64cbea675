"""List the trainings that are no pipelines. Each is a folder beside this module, under the name of its ``schedule``."""

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

PROGRAM, TRACE = "program", "trace"
"""The schedules of a user's own program, and of ``compute.trace``. The experiment file need not write them."""

_ALWAYS_USED = (
    "training.iterations",
    "training.warmup",
    "transport.window",
    "transport.congestion",
    "transport.slow_start_after_idle",
)
"""The fields of how long every training lasts, and those that its hosts' TCP is set to."""


@dataclass(frozen=True)
class Training:
    """A kind of training: its folder, and what it uses of the fields that pipelines use.

    These are fields of a variant, like ``placement`` or ``transport.connections``, and ``model`` and those of
    ``compute`` and ``training``, like ``compute.forward``. The name of a section stands for all its fields. Where a
    field is written that no training uses, the file is refused.
    """

    folder: str
    uses: tuple[str, ...] = ()

    def uses_field(self, path: str) -> bool:
        """Return whether it uses the field at that path."""
        return any(f"{path}.".startswith(f"{used}.") for used in (*_ALWAYS_USED, *self.uses))


TRAININGS: dict[str, Training] = {
    PROGRAM: Training("wanbed.runner.trainings.program", uses=("compute.kind", "compute.device", "compute.sharing")),
    TRACE: Training(
        "wanbed.runner.trainings.trace",
        uses=("compute.trace", "placement", "transport.model", "transport.connections", "transport.keep_warm"),
    ),
}
"""Each of them, by the name of its schedule.

In ``resolution`` of the folder ``resolve(written)`` returns the resolved variant. In ``simulation`` ``simulate(network,
iterations, pulse)`` returns a ``Simulation``; a training without that module is refused there. In ``on_hosts``
``train(trial, begin, look)`` runs its processes until they have ended, and returns what they have left.
"""


def named_trainings() -> tuple[str, ...]:
    """Return the names that an editor and a refusal offer."""
    return tuple(name for name in TRAININGS if name not in {PROGRAM, TRACE})


def training_layer(schedule: str, layer: str) -> ModuleType | None:
    """Return the module ``layer`` of a training's folder, None for a pipeline's schedule."""
    training = TRAININGS.get(schedule)
    return None if training is None else import_module(f"{training.folder}.{layer}")


def training_title(schedule: str) -> str:
    """Return what a training is called in messages."""
    return {PROGRAM: "a program", TRACE: "a trace"}.get(schedule, schedule)
