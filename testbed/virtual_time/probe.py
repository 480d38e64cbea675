"""Probe whether this user can run virtual time on this machine, and what only root could enable."""

import os
import subprocess
from dataclasses import dataclass

from wanbed.ground.errors import MissingError
from wanbed.testbed.kernel.killed import check_not_killed
from wanbed.testbed.virtual_time.guest import namespaces
from wanbed.testbed.virtual_time.guest_place import map_count_advice, memory_for_virtual_time
from wanbed.testbed.virtual_time.kernel_cache import configuration_hash, virtual_kernel

_LIMIT_S = 20.0


@dataclass(frozen=True)
class VirtualTimeOffer:
    """The availability of virtual time on this machine, and the reason.

    ``kernel`` is the release of the kernel to boot and ``path`` its file, None if none is built. ``root_for`` lists
    what only root can do to enable or improve it, one line each; empty if nothing is missing.
    """

    available: bool
    reason: str
    kernel: str | None = None
    configuration_hash: str = ""
    path: str | None = None
    root_for: tuple[str, ...] = ()


def probe_virtual_time() -> VirtualTimeOffer:
    """Check for the kernel, for a guest's namespaces and for its memory, without booting a guest."""
    wanted = configuration_hash()
    try:
        kernel = virtual_kernel()
    except MissingError as lack:
        return VirtualTimeOffer(False, str(lack), configuration_hash=wanted)
    found = kernel.record.release, wanted, str(kernel.program)
    if refusal := _namespaces_refused():
        enable = "run as root, or as root: sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000"
        return VirtualTimeOffer(False, f"no namespaces for a guest: {refusal}", *found, root_for=(enable,))
    try:
        memory_for_virtual_time()
    except MissingError as lack:
        return VirtualTimeOffer(False, str(lack), *found)
    advice = map_count_advice()
    reason = f"the kernel {kernel.record.release} boots as {'root' if os.geteuid() == 0 else 'this user, without root'}"
    return VirtualTimeOffer(True, reason, *found, root_for=() if advice is None or os.geteuid() == 0 else (advice,))


def _namespaces_refused() -> str | None:
    """Return why this user cannot create a guest's namespaces, None if it can."""
    try:
        tried = subprocess.run(
            ["unshare", *namespaces(), "true"], capture_output=True, text=True, check=False, timeout=_LIMIT_S
        )
    except OSError as fault:
        return f"unshare: {fault.strerror}"
    except subprocess.TimeoutExpired:
        return f"unshare did not end within {_LIMIT_S:.0f} s"
    check_not_killed(tried)
    return None if tried.returncode == 0 else tried.stderr.strip() or f"unshare ended with {tried.returncode}"
