"""List the programs that hosts need on a machine, and find them."""

import os
import shutil

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
