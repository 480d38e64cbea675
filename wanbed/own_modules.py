"""Import our packages from the folder that holds this one, whatever else bears their names; start our modules so too.

The names are common words: a folder ``results/`` or a file ``runner.py`` of somebody's own, in the current folder or on
PYTHONPATH, would be imported in their place. Importing this module prevents that from then on. So does running a module
through it: ``python -P .../wanbed/own_modules.py MODULE ARGUMENT...``. Nothing else of ours is imported here.
"""

import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

OWN_PACKAGES = ("ground", "netem_profiles", "results", "runner", "testbed", "wanbed", "workloads")
_FILE = Path(__file__).resolve()

RUN_MODULE = ("-P", str(_FILE))
"""Options of Python that stand for ``-m`` wherever a module of ours is started."""


class OwnPackages:
    """Find our packages where they lie, and leave every other module to the finders that follow."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of one of our packages, None for everything else, our packages' modules too."""
        return PathFinder.find_spec(fullname, [str(_FILE.parents[1])]) if fullname in OWN_PACKAGES else None


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs one of our modules, as ``python -m`` does, in whatever folder it is started.

    The module may be another's too: it is looked for on PYTHONPATH and among what is installed, not in that folder.
    """
    return [sys.executable, *RUN_MODULE, module, *arguments]


def call(function: Callable[..., object], *arguments: object) -> None:
    """Call a function of ours: the target of a process that ``multiprocessing`` spawns.

    Such a process imports its target's module before what the arguments come from, so that these are ours.
    """
    function(*arguments)


sys.meta_path.insert(0, OwnPackages())

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
