"""Run a simulation's task on a machine, in Ray. It travels as code, as ``on_machine`` does, and imports only that.

A machine that joins late may have another wanbed than the machines present at the beginning, so each task checks.
"""

import platform
from importlib import import_module
from typing import Any

from wanbed.runner.rack.on_machine import use_wanbed


def run_here(sent: bool, sources: str, modules: bytes | None, work: bytes) -> tuple[str | None, Any]:
    """Return None and the result of ``work``, a function without arguments; or why this machine refuses it, and None.

    ``sources`` is the hash of wanbed's sources that it has to have. ``modules`` are those of the user's classes that
    the work needs, a ``wanbed.runner.rack.shipped.user_modules.UserModules``. ``sent`` is as in ``on_machine``. What is
    not plain comes pickled, because Ray would unpickle it before this machine has wanbed.
    """
    machine = platform.node()
    try:
        use_wanbed(sent)
        ours = import_module("wanbed.testbed.rack.machine.facts").sources_hash()
    except ImportError as missing:
        return f"{machine}: wanbed does not work there ({missing}): pip install 'wanbed[rack]' there", None
    if ours != sources:
        return f"{machine}: it has joined with another wanbed: install there the one of this machine", None
    loads = import_module("ray.cloudpickle").loads
    if modules is not None:
        lacking = import_module("wanbed.runner.rack.shipped.user_modules").used_modules(loads(modules))
        if lacking is not None:
            return f"{machine}: {lacking}", None
    function = loads(work)
    return None, function()
