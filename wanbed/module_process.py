"""Run a module of wanbed in a process of its own: ``python -P .../wanbed/module_process.py MODULE ARGUMENT...``.

The module is that of the wanbed which this file is part of, from any folder, whatever Python would find by the name.
This module imports no other module of wanbed.
"""

import runpy
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

PACKAGE = "wanbed"
FOLDER = Path(__file__).resolve().parent
"""The folder of wanbed's modules."""

RUN_MODULE = ("-P", str(FOLDER / "module_process.py"))
"""Options of Python that replace ``-m`` to start a module of wanbed."""


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of wanbed, as ``python -m`` does, from any folder.

    A module of another package works too: it is searched on PYTHONPATH and among installed packages, not in the current
    folder.
    """
    return [sys.executable, *RUN_MODULE, module, *arguments]


def _import_this_wanbed() -> None:
    spec = spec_from_file_location(PACKAGE, FOLDER / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[PACKAGE] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[PACKAGE])


if __name__ == "__main__":
    _import_this_wanbed()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
