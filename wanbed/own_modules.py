"""Import wanbed's packages from the folder that contains this one, even if other modules have the same names.

The names are common words: a user's folder ``results/`` or file ``runner.py``, in the current folder or on PYTHONPATH,
would be imported in their place. Importing this module prevents that from then on, and is refused where one of theirs
has been imported already. It has a price: from then on ``import results`` gives wanbed's in the user's program too.
``warn_of_hidden_modules`` says so. To run a module in the same way, use ``python -P .../wanbed/own_modules.py MODULE
ARGUMENT...``. This module imports no other module of wanbed.
"""

import runpy
import sys
import warnings
from collections.abc import Sequence
from functools import cache
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


def _refuse_others() -> None:
    """Raise ImportError if a module of somebody else has been imported under the name of one of wanbed's packages."""
    for name in OWN_PACKAGES:
        module = sys.modules.get(name)
        if module is not None and not _is_own(name, getattr(module, "__file__", None)):
            raise ImportError(
                f"wanbed has a package {name!r}, and another one has been imported before it, from "
                f"{getattr(module, '__file__', None) or 'a folder'}: rename that one"
            )


@cache
def warn_of_hidden_modules() -> None:
    """Warn, once, of each module that the user's program can no longer import, because wanbed has a package so named.

    The program itself is none of them, and neither is a folder without Python files.
    """
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    for name in OWN_PACKAGES:
        found = PathFinder.find_spec(name)
        file = None if found is None else found.origin
        if file is None or _is_own(name, file):
            continue
        if program is not None and Path(program).resolve() == Path(file).resolve():
            continue
        warnings.warn(f"{file}: `import {name}` gives wanbed's package of that name: rename yours", stacklevel=3)


def _is_own(name: str, file: str | None) -> bool:
    return file is not None and Path(file).resolve().is_relative_to(_FILE.parents[1] / name)


_refuse_others()
sys.meta_path.insert(0, OwnPackages())

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
