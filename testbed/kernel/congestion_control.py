"""List the kernel's congestion controls, and allow namespaces to use one as their default."""

from pathlib import Path

from wanbed.testbed.kernel.missing import MissingError

_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")


def available_congestion_controls() -> tuple[str, ...]:
    """Return the names of the congestion controls that this machine's kernel has loaded."""
    return tuple(_AVAILABLE.read_text().split())


def allow_congestion_control(name: str) -> None:
    """Allow every network namespace to use the congestion control ``name``, machine-wide.

    Namespaces other than the initial one may use only those on the kernel's list of allowed ones. Raise MissingError if
    the kernel does not have it.
    """
    if name not in available_congestion_controls():
        raise MissingError(
            f"congestion control {name!r} is not in this kernel, which has "
            f"{', '.join(available_congestion_controls())}: modprobe tcp_{name}, or use a kernel that has it"
        )
    allowed = _ALLOWED.read_text().split()
    if name not in allowed:
        try:
            _ALLOWED.write_text(" ".join([*allowed, name]))
        except OSError as fault:
            raise MissingError(
                f"congestion control {name!r} is not on the machine's list of allowed ones ({fault.strerror}): "
                f"as root: sysctl net.ipv4.tcp_allowed_congestion_control='{' '.join([*allowed, name])}'"
            ) from None
