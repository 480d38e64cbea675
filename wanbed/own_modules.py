"""Import wanbed's packages from the folder that contains this one, even if other modules have the same names.

The names are common words: a user's folder ``results/`` or file ``runner.py``, in the current folder or on PYTHONPATH,
would be imported in their place. Importing this module prevents that from then on. To run a module in the same way,
use ``python -P .../wanbed/own_modules.py MODULE ARGUMENT...``. This module imports no other module of wanbed.
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
"""Options of Python that replace ``-m`` to start a module of wanbed."""


class OwnPackages:
    """Find wanbed's packages in their own folder, and leave every other module to the finders that follow."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of one of wanbed's packages, None for anything else (modules in them included)."""
        return PathFinder.find_spec(fullname, [str(_FILE.parents[1])]) if fullname in OWN_PACKAGES else None


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of wanbed, as ``python -m`` does, from any folder.

    A module of another package works too: it is searched on PYTHONPATH and among installed packages, not in the current
    folder.
    """
    return [sys.executable, *RUN_MODULE, module, *arguments]


def call(function: Callable[..., object], *arguments: object) -> None:
    """Call a function of wanbed; use this as the target of a process that ``multiprocessing`` spawns.

    Such a process imports its target's module first, so that the arguments' modules are then imported from wanbed.
    """
    function(*arguments)


sys.meta_path.insert(0, OwnPackages())

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
