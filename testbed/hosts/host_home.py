"""Say what programs find on a host."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from wanbed.module_process import RUN_MODULE
from wanbed.testbed.hosts.search_path import search_path


@dataclass(frozen=True)
class HostHome:
    """The Python, the PATH and the files that programs of one host find.

    ``run_module`` are the words that run a module of wanbed, in front of its name, and begin with Python's path;
    ``search_path`` is the PATH of programs. ``place`` returns where they have the file or folder that this machine has
    at a path.
    """

    run_module: tuple[str, ...]
    search_path: str
    place: Callable[[str], str]

    @property
    def python(self) -> str:
        """The Python that runs wanbed there."""
        return self.run_module[0]


def home_here() -> HostHome:
    """Return what programs find on a host of this machine."""
    return HostHome((sys.executable, *RUN_MODULE), search_path(), lambda path: path)
