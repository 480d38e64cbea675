"""Run calls and tasks on the machines of a rack, in Ray. It travels there as code, not by name, and imports no other.

A machine may lack wanbed, or have another version of it; one that joins late too, so that each task checks. ``sent`` is
whether wanbed comes in the folder that Ray has put the worker process in.
"""

import os
import pickle
import platform
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

MACHINE = "wanbed.testbed.rack.machine.machine:Machine"
"""The class of the object that an agent drives, as ``module:class``."""

RETURNED, RAISED = "returned", "raised"
"""The outcomes of a call of an agent. The returned value follows ``RETURNED``; the exception and its traceback as text
follow ``RAISED``."""


def use_wanbed(sent: bool) -> None:
    """Have the wanbed that was sent imported in this process, ahead of another one."""
    if sent and os.getcwd() not in sys.path[:1]:
        sys.path.insert(0, os.getcwd())


def sources_here(sent: bool) -> dict[str, str | None]:
    """Return the hash of this machine's wanbed, None if it has none, and why it does not work here, None if it does."""
    sources = None
    try:
        use_wanbed(sent)
        sources = str(import_module("wanbed.testbed.rack.machine.facts").sources_hash())
        import_module("wanbed.testbed.rack.machine.machine")
    except ModuleNotFoundError as lacking:
        name = (lacking.name or "").partition(".")[0]
        return {"sources": sources, "fault": None if name == "wanbed" else f"no module {name}"}
    except (ImportError, AttributeError) as fault:
        # Without sources it is some other package of that name.
        return {"sources": sources, "fault": None if sources is None else str(fault)}
    return {"sources": sources, "fault": None}


def clean_here(sent: bool) -> dict[str, Any]:
    """Remove what killed runs left on this machine. Return what was removed, what is in use, and what went wrong."""
    use_wanbed(sent)
    cleaning, registry = (
        import_module("wanbed.testbed.claims.cleaning"),
        import_module("wanbed.testbed.claims.registry"),
    )
    try:
        cleaned = cleaning.clean()
    except cleaning.CleaningError as fault:
        return {"cleaned": [], "in_use": [], "fault": str(fault)}
    in_use = [claim.record for claim in registry.claims()]
    return {
        "cleaned": [vars(each) for each in cleaned],
        "in_use": [
            {"identifier": record.identifier, "source": record.source, "process": record.owner_pid} for record in in_use
        ],
        "fault": None,
    }


class Wanted:
    """Say whether this machine has what an experiment wants of it. wanbed is there."""

    def load_modules(self, modules: Any) -> str | None:
        """Import a user's classes, from the zip file of their modules. Return what is lacking for it, None if nothing.

        ``modules`` is a ``wanbed.runner.rack_runs.user_modules.UserModules``.
        """
        lacking: str | None = import_module("wanbed.runner.rack_runs.user_modules").used_modules(modules)
        return lacking

    def lacking_program(self, needs: Any) -> str | None:
        """Return what this machine lacks for users' programs, with the remedy, None if nothing.

        ``needs`` are a ``wanbed.runner.rack_runs.sent_programs.ProgramNeeds``.
        """
        lacking: str | None = import_module("wanbed.runner.rack_runs.sent_programs").lacking_program(needs)
        return lacking

    def lacking_for(self, backend_path: str, options: dict[str, Any]) -> str | None:
        """Return what this machine lacks for a compute back end, with the remedy, None if nothing."""
        backend = import_module("wanbed.workloads.compute.backends.backend").create_backend(backend_path, options)
        missing: str | None = backend.missing()
        return missing


class MachineAgent(Wanted):
    """Drive this machine for a run: pass the driver's calls on, several at a time.

    ``holder`` names the run to people.
    """

    def __init__(self, holder: str, address: str | None, sent: bool, machine: str = MACHINE) -> None:
        use_wanbed(sent)
        module, _, name = machine.partition(":")
        self._holder = holder
        self._machine = getattr(import_module(module), name)(address)

    def holder(self) -> str:
        """Return who drives this machine, and since when."""
        return self._holder

    def visible_gpus(self) -> str | None:
        """Return the GPUs that Ray has given to this process, as in CUDA_VISIBLE_DEVICES."""
        return os.environ.get("CUDA_VISIBLE_DEVICES")

    def call(self, method: str, *arguments: Any) -> tuple[Any, ...]:
        """Call a method of the machine. Return how it ended, see ``RETURNED``, so that errors travel as they are."""
        try:
            return RETURNED, getattr(self._machine, method)(*arguments)
        except Exception as fault:
            text = traceback.format_exc()
            try:
                pickle.loads(pickle.dumps(fault))  # noqa: S301 - made on this line
            except Exception:
                fault = RuntimeError(f"{type(fault).__name__}: {fault}")
            return RAISED, fault, text


def _folder_of_ray() -> Path:
    """Return the folder in which Ray keeps its sockets on this machine, and what is sent to it."""
    return Path(import_module("ray._private.worker").global_worker.node.get_session_dir_path())


class Surveyor(Wanted):
    """Look at this machine for ``wanbed doctor``, and measure the plain network to other machines."""

    def __init__(self, sent: bool) -> None:
        use_wanbed(sent)
        self._survey = import_module("wanbed.testbed.rack.machine.plain_network")
        self._listening: Any = None

    def facts(self, address: str | None) -> dict[str, Any]:
        """Return what the machine is and has, in plain JSON types.

        ``exposed`` is the part of the path to Ray's folder that other users of the machine may write, None if no part:
        they could replace what Ray runs from there.
        """
        survey = import_module("wanbed.testbed.rack.machine.survey")
        distrust_of = import_module("wanbed.ground.user_cache").distrust_of
        return {**survey.survey_machine(address), "exposed": distrust_of(_folder_of_ray())}

    def clock_ns(self) -> int:
        """Return the machine's wall clock."""
        return time.time_ns()

    def listen(self, address: str, token: str) -> int:
        """Wait for one partner of a measurement at ``address``. Return the port."""
        self._listening = self._survey.PlainListener(address, token)
        return int(self._listening.port)

    def answer(self) -> None:
        """Play the listening side of one measurement, to its end."""
        self._listening.answer()

    def measure(self, address: str, port: int, token: str) -> dict[str, float]:
        """Measure the plain network to a machine that listens: RTT in ms, and bits a second each way."""
        return dict(self._survey.measure_plain(address, port, token))


def run_here(sent: bool, sources: str, modules: bytes | None, work: bytes) -> tuple[str | None, Any]:
    """Return None and the result of ``work``, a function without arguments; or why this machine refuses it, and None.

    ``sources`` is the hash of wanbed's sources that it has to have. ``modules`` are those of the user's classes that
    the work needs, a ``wanbed.runner.rack_runs.user_modules.UserModules``. What is
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
        lacking = import_module("wanbed.runner.rack_runs.user_modules").used_modules(loads(modules))
        if lacking is not None:
            return f"{machine}: {lacking}", None
    function = loads(work)
    return None, function()
