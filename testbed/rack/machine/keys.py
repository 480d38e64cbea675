"""Make the key pairs with which machines know each other. A private key never leaves its machine."""

import shutil
import subprocess
from dataclasses import dataclass

from wanbed.testbed.hosts.host_environment import system_path
from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.substrate.guest_device import TAP_DEVICE

TUNNEL_PROGRAMS = {"wireguard-go": "wireguard-go", "wg": "wireguard-tools"}
"""The programs that a machine needs for an encrypted overlay, and the Debian package of each."""


@dataclass(frozen=True, repr=False)
class KeyPair:
    """WireGuard's two keys of one machine, in its own notation. ``repr`` shows neither."""

    private: str
    public: str


def missing_for_tunnel() -> str | None:
    """Return what of an encrypted overlay this machine lacks, with the remedy; None if it lacks nothing."""
    path = system_path()
    lacking = {name: package for name, package in TUNNEL_PROGRAMS.items() if shutil.which(name, path=path) is None}
    if not lacking:
        return None if TAP_DEVICE.exists() else f"no {TAP_DEVICE} for wireguard: modprobe tun"
    return f"no {' and no '.join(lacking)} for wireguard: apt install {' '.join(lacking.values())}"


def make_key_pair() -> KeyPair:
    """Draw a new key pair. Raise MissingError if this machine lacks something for the tunnel."""
    missing = missing_for_tunnel()
    if missing is not None:
        raise MissingError(missing)
    private = _wg("genkey")
    return KeyPair(private, _wg("pubkey", private))


def _wg(command: str, typed: str = "") -> str:
    wg = shutil.which("wg", path=system_path()) or "wg"
    return subprocess.run([wg, command], input=typed, capture_output=True, text=True, check=True).stdout.strip()
