"""List what happens beside a training. Each companion is a folder beside this module.

Its name here is its field of the experiment file, where it has one: a line of ``ExperimentSpec`` then defines that.
"""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

COMPANIONS: dict[str, str] = {
    "telemetry": "wanbed.runner.companions.telemetry",
    "fail": "wanbed.runner.companions.faults",
    "prefill": "wanbed.runner.companions.prefill",
    "changes": "wanbed.runner.companions.link_changes",
    "background": "wanbed.runner.companions.background",
    "losses": "wanbed.runner.companions.losses",
}
"""The folder of each, by name. On hosts the first one starts first and ends last.

In ``on_hosts`` of a folder ``COMPANION`` is its class. In ``record`` ``simulated(topology, variant, simulation)``
returns what a simulation leaves of it; where a folder has no ``record``, the field is named beside the figures of
simulations as not modelled. In ``resolution`` ``refusals(point, variants)`` yields what cannot run beside a training.
"""


def companion_layer(name: str, layer: str) -> ModuleType | None:
    """Return the module ``layer`` of a companion's folder, None if it has none."""
    return import_module(f"{COMPANIONS[name]}.{layer}") if has_layer(name, layer) else None


def companion_layers(layer: str) -> Iterator[ModuleType]:
    """Yield the modules ``layer`` of all companions that have it, in their order."""
    for name in COMPANIONS:
        if (module := companion_layer(name, layer)) is not None:
            yield module


def has_layer(name: str, layer: str) -> bool:
    """Return whether a companion's folder has the module ``layer``, which is not loaded for that."""
    return _exists(f"{COMPANIONS[name]}.{layer}")


@cache
def _exists(module: str) -> bool:
    return find_spec(module) is not None
