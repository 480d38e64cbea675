"""Lay out a host for programs: files of /etc, the PATH, Python; and name those that a machine needs for its hosts.

Without a name server of its own, a host would ask the machine's, which it does not reach: each look-up of an unknown
name would then wait for seconds. So hosts ask themselves, where nothing listens and the kernel refuses at once.
"""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wanbed.module_process import RUN_MODULE

_HOSTS, _RESOLVER = "hosts", "resolv.conf"
_REFUSING = "nameserver 127.0.0.1\noptions attempts:1 timeout:1\n"


def write_host_files(folder: Path, hosts_file: str) -> Path:
    """Write the files into the new folder ``folder`` and return it. ``hosts_file`` is the text of /etc/hosts."""
    folder.mkdir()
    (folder / _HOSTS).write_text(hosts_file)
    (folder / _RESOLVER).write_text(_REFUSING)
    return folder


def covered(etc: Path, machine: Path = Path("/etc")) -> list[tuple[Path, Path]]:
    """Return each file of the folder ``etc`` with the machine's file of that name, on which a host mounts it.

    A machine without a resolv.conf, or with a link to none, needs no mount: the C library then asks 127.0.0.1 anyway.
    """
    files = [(path, machine / path.name) for path in sorted(etc.iterdir())]
    return [(path, place) for path, place in files if place.exists() or place.name != _RESOLVER]


HOST_PROGRAMS = {
    "mnexec": "mininet",
    "ifconfig": "net-tools",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ping": "iputils-ping",
    "iperf3": "iperf3",
}
"""Programs that every host needs, and the Debian package of each."""

SYSTEM_PROGRAMS = "/usr/sbin:/sbin"
"""Folders of programs for root, which a PATH lacks after ``su`` without ``-`` and in an ordinary user's shell."""


def system_path() -> str:
    """Return this process's PATH with the folders of the system's programs at its end."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([*folders, *SYSTEM_PROGRAMS.split(os.pathsep)]))


def missing_programs() -> dict[str, str]:
    """Return the programs that hosts need and this machine lacks, each with its Debian package."""
    path = system_path()
    return {program: package for program, package in HOST_PROGRAMS.items() if shutil.which(program, path=path) is None}


def search_path() -> str:
    """Return the PATH of programs: what is installed beside wanbed is found after everything that the caller finds."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])


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
