"""Determine what this process may do on this machine: make hosts, itself or in a user namespace, and use large buffers.

Everything is tried. Nothing is concluded from user ids and capabilities: containers, security modules and sysctls all
may refuse.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wanbed.testbed.kernel.killed import check_not_killed

_SO_RCVBUFFORCE = 33


def large_buffers_allowed() -> bool:
    """Return whether a program may give its sockets any receive buffer, which takes NET_ADMIN outside user namespaces.

    Where it may not, the sysctls of the hosts' network namespaces give every socket its buffer.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
        try:
            tried.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 2**16)
        except PermissionError:
            return False
    return True


UNMAPPED = -1
_ID_MAP = Path("/proc/self/uid_map")


def owner_of(user_id: int, id_map: str | None = None) -> int:
    """Return the id outside this process's user namespace of its user ``user_id``; ``UNMAPPED`` if it has none.

    ``id_map`` is the text of the namespace's map, by default that of this process.
    """
    for line in (_ID_MAP.read_text() if id_map is None else id_map).splitlines():
        first, outside, count = (int(word) for word in line.split())
        if first <= user_id < first + count:
            return outside + user_id - first
    return UNMAPPED


def process_owner() -> int:
    """Return the id outside of the user that this process runs as."""
    return owner_of(os.geteuid())


ENTER = ("unshare", "--user", "--map-root-user", "--net")
"""The command that runs another one inside a user namespace, where this user is root.

It takes a network namespace too: a process can return only to one that belongs to its own user namespace.
"""

_AS_ROOT = "run as root, or with sudo"
_WITH_CAPABILITIES = "give the container the capabilities SYS_ADMIN and NET_ADMIN, or run as a user other than root"
_IN_CONTAINERS = "in a container a seccomp profile that allows unshare (docker run --security-opt seccomp=unconfined)"
_SYSCTLS = {
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    "user.max_user_namespaces": ("0", "10000"),
}
"""Sysctls that may forbid user namespaces, each with the value that does and one that does not."""
_TRIAL_LIMIT_S = 20.0


@dataclass(frozen=True)
class HostsAllowed:
    """Why this process may not make hosts, ``directly`` and ``inside`` a user namespace; None where it may.

    ``inside`` is None too if it was not tried, because hosts can be made directly.
    """

    directly: str | None
    inside: str | None = None
    user_id: int = 0

    @property
    def by_entering(self) -> bool:
        """True if hosts can be made, but only inside a user namespace."""
        return self.directly is not None and self.inside is None

    @property
    def reason(self) -> str:
        """Why hosts cannot be made in this process."""
        return f"{self.directly}{'' if self.inside is None else f', and in a user namespace: {self.inside}'}"

    @property
    def remedy(self) -> str:
        """The remedy where hosts cannot be made in this process."""
        if self.by_entering:
            return f"start this program with `{' '.join(ENTER)}`, as the command does by itself; or {_AS_ROOT}"
        return _WITH_CAPABILITIES if self.user_id == 0 else f"{_AS_ROOT}; or allow user namespaces: {_allowing()}"


def hosts_allowed() -> HostsAllowed:
    """Try to make a host's namespaces, and again inside a user namespace if that fails.

    Raises KilledError if something has killed the trial.
    """
    directly = _refusal(())
    return HostsAllowed(directly, None if directly is None else _refusal(ENTER), os.geteuid())


def _refusal(enter: Sequence[str]) -> str | None:
    """Return why a host's namespaces cannot be made, None if they can."""
    # What every host starts with: it also mounts /sys, which some containers refuse.
    make = ["mnexec", "-n", "true"] if shutil.which("mnexec") else ["unshare", "--net", "--mount", "true"]
    try:
        tried = subprocess.run(
            [*enter, *make], capture_output=True, text=True, errors="replace", check=False, timeout=_TRIAL_LIMIT_S
        )
    except OSError as fault:
        return f"{(*enter, *make)[0]}: {fault.strerror}"
    except subprocess.TimeoutExpired:
        return f"{(*enter, *make)[0]} did not end within {_TRIAL_LIMIT_S:.0f} s"
    check_not_killed(tried)
    if tried.returncode == 0:
        return None
    lines = tried.stderr.strip().splitlines()
    return lines[-1] if lines else f"{(*enter, *make)[0]} ended with status {tried.returncode}"


def _allowing(root: Path = Path("/proc/sys")) -> str:
    """Return what allows user namespaces here: the sysctls that forbid them, or else what containers need."""
    forbidding = [
        f"{name}={allowed}"
        for name, (forbidden, allowed) in _SYSCTLS.items()
        if (path := root.joinpath(*name.split("."))).exists() and path.read_text().strip() == forbidden
    ]
    return f"as root, sysctl {' '.join(forbidding)}" if forbidding else _IN_CONTAINERS


def in_user_namespace() -> bool:
    """Return whether this process is root only inside a user namespace."""
    return os.geteuid() == 0 and owner_of(0) not in {0, UNMAPPED}
