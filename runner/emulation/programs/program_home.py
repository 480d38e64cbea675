"""Say where programs of users find what they need on a host: on this machine, or on one of a rack."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wanbed.module_process import RUN_MODULE
from wanbed.runner.resolve.program.resolved_program import ResolvedProgram
from wanbed.testbed.hosts.search_path import search_path
from wanbed.testbed.running_testbed import RunningTestbed


@dataclass(frozen=True)
class ProgramHome:
    """What programs of one host find.

    ``run_module`` are the words that run a module of wanbed, in front of its name, and ``search_path`` is their PATH.
    They start in ``working_folder``; ``experiment_folder`` is that of the experiment file. ``place`` returns where they
    have the file or folder that this machine has at a path.
    """

    run_module: tuple[str, ...]
    search_path: str
    working_folder: str
    experiment_folder: str
    place: Callable[[str], str]

    @property
    def python(self) -> str:
        """The Python that runs wanbed there."""
        return self.run_module[0]


def home_here(program: ResolvedProgram) -> ProgramHome:
    """Return what programs find on this machine, when they start in the current folder."""
    run_module = (sys.executable, *RUN_MODULE)
    return ProgramHome(run_module, search_path(), str(Path.cwd()), str(program.folder), lambda path: path)


def home_on(testbed: RunningTestbed, host: str, program: ResolvedProgram) -> ProgramHome:
    """Return what programs find on a host. On a rack files that were sent are elsewhere than on this machine."""
    rack = testbed.rack
    if rack is None:
        return home_here(program)
    lease = rack.lease_of(host)

    def place(path: str) -> str:
        return rack.path_on(host, path)

    folder, working = place(str(program.folder)), place(str(Path.cwd()))
    return ProgramHome(lease.run_module, lease.search_path, working, folder, place)
