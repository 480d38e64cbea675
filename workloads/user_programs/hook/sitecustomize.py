"""Start the hook in this Python, then run the ``sitecustomize`` that this file hides.

Python imports this module at its start, because the folder is on PYTHONPATH. Without WANBED_HOOK it does nothing.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys


def _start_hook() -> None:
    if "WANBED_HOOK" not in os.environ:
        return
    try:
        importlib.import_module("wanbed_hook.hook").start(os.environ["WANBED_HOOK"])
    except Exception as fault:
        # Whatever is wrong here, the user's program has to run as it would without the hook.
        sys.stderr.write(f"wanbed: the hook does not record: {type(fault).__name__}: {fault}\n")


def _run_hidden() -> None:
    """Import the next ``sitecustomize`` on the path in place of this one. Its errors are its own."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [each for each in sys.path if os.path.abspath(each) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_start_hook()
_run_hidden()
