"""Hold a WireGuard tunnel from one machine's gateway to those of the other machines, by wireguard-go.

wireguard-go runs where the card is, so that its UDP socket is there. Its TUN device is moved to the gateway's namespace
and ends with the process. The process has file systems of its own over ``/run``: its control socket is reached through
the process only, and nothing of it stays behind however the process ends.

Machines know each other by key pairs. A private key never leaves its machine.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from wanbed.ground.errors import MissingError
from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.hosts.host_environment import system_path
from wanbed.testbed.kernel.gateway_programming import link_index
from wanbed.testbed.kernel.namespace import open_netlink, opened
from wanbed.testbed.rack.machine_plan import TUNNEL_INTERFACE, WIREGUARD_HEADER_BYTES, MachinePlan
from wanbed.testbed.substrate.guest_device import TAP_DEVICE
from wanbed.testbed.substrate.substrate import SubstrateError

TUNNEL_PORT = 14790
"""The UDP port of a machine's card at which encrypted packets arrive."""

_OWN_NAMESPACE = "/proc/thread-self/ns/net"
_PREFIX_LENGTH = 16
_KEEPALIVE_S = 25
"""WireGuard's advice. With it, tunnels are agreed on at once, and not by the first packet that is measured."""
_PATIENCE_S, _LOOK_S = 10.0, 0.01
_DEFAULT_MTU_BYTES = 1420
"""The MTU with which wireguard-go begins. It pads a packet up to the MTU it knows, so it has to know the real one."""
_START = 'mount -t tmpfs -o mode=700 tmpfs /run && exec wireguard-go -f "$0"'


class WireGuardTunnel:
    """The tunnel of one machine's ``plan``, up and agreed on with no one yet. ``close`` ends it.

    ``marker`` is the mark of the testbed's processes, ``namespace`` that of the gateway. Raise SubstrateError, with
    what wireguard-go said, if the tunnel does not come up.
    """

    def __init__(self, plan: MachinePlan, namespace: str, marker: str, private_key: str) -> None:
        self._machine = plan.machine
        # Only in memory: what it says names the other machines.
        self._said = os.memfd_create("wireguard-go")
        self._process = subprocess.Popen(
            ["unshare", "--mount", "--", "sh", "-c", _START, TUNNEL_INTERFACE],
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            env={**os.environ, "PATH": system_path(), "LOG_LEVEL": "verbose", MARKER: marker},
            cwd="/",
            start_new_session=True,
        )
        try:
            self._await("UAPI listener started")
            self._configure(plan, private_key)
            self._move(plan, namespace)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End wireguard-go, and with it the device and all keys."""
        self._process.kill()
        self._process.wait()
        if self._said >= 0:
            os.close(self._said)
            self._said = -1

    def _configure(self, plan: MachinePlan, private_key: str) -> None:
        mtu_bytes = plan.underlay.mtu - WIREGUARD_HEADER_BYTES
        with _netlink(_OWN_NAMESPACE) as own:
            own.link("set", index=link_index(own, TUNNEL_INTERFACE), mtu=mtu_bytes)
        if mtu_bytes != _DEFAULT_MTU_BYTES:
            self._await("MTU updated")
        done = subprocess.run(
            ["nsenter", f"--mount=/proc/{self._process.pid}/ns/mnt", "wg", "setconf", TUNNEL_INTERFACE, "/dev/stdin"],
            input=tunnel_configuration(plan, private_key),
            env={**os.environ, "PATH": system_path()},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise self._refusal(done.stderr.strip().replace("\n", "; "))

    def _move(self, plan: MachinePlan, namespace: str) -> None:
        with _netlink(_OWN_NAMESPACE) as own, opened(namespace) as gateway_namespace:
            own.link("set", index=link_index(own, TUNNEL_INTERFACE), net_ns_fd=gateway_namespace)
        with _netlink(namespace) as gateway:
            index = link_index(gateway, TUNNEL_INTERFACE)
            gateway.addr("add", index=index, address=plan.tunnel_address, prefixlen=_PREFIX_LENGTH)
            gateway.link("set", index=index, state="up")

    def _await(self, line: str) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while line not in self._text():
            if self._process.poll() is not None:
                raise self._refusal(f"wireguard-go has ended with status {self._process.returncode}")
            if time.monotonic() > deadline_s:
                raise self._refusal(f"wireguard-go did not say {line!r} within {_PATIENCE_S:g} s")
            time.sleep(_LOOK_S)

    def _text(self) -> str:
        return os.pread(self._said, os.fstat(self._said).st_size, 0).decode("utf-8", "replace")

    def _refusal(self, reason: str) -> SubstrateError:
        said = [line for line in self._text().splitlines() if "ERROR" in line or "rror:" in line]
        return SubstrateError(f"machine {self._machine}: no wireguard tunnel: {'; '.join([reason, *said[-1:]])}")


def tunnel_configuration(plan: MachinePlan, private_key: str) -> str:
    """Return what ``wg setconf`` reads: this machine's key and port, and every other machine as a peer.

    A peer may send from its own tunnel address only; the frames of hosts are inside.
    """
    lines = ["[Interface]", f"PrivateKey = {private_key}", f"ListenPort = {TUNNEL_PORT}"]
    for far in (each for link in plan.links for each in link.far):
        lines += [
            "[Peer]",
            f"PublicKey = {far.public_key}",
            f"Endpoint = {far.address}:{TUNNEL_PORT}",
            f"AllowedIPs = {far.tunnel_address}/32",
            f"PersistentKeepalive = {_KEEPALIVE_S}",
        ]
    return "".join(f"{line}\n" for line in lines)


@contextmanager
def _netlink(namespace: str) -> Iterator[Any]:
    netlink = open_netlink(namespace)
    try:
        yield netlink
    finally:
        netlink.close()


_TUNNEL_PROGRAMS = {"wireguard-go": "wireguard-go", "wg": "wireguard-tools"}
"""The programs that a machine needs for an encrypted overlay, and the Debian package of each."""


@dataclass(frozen=True, repr=False)
class KeyPair:
    """WireGuard's two keys of one machine, in its own notation. ``repr`` shows neither."""

    private: str
    public: str


def missing_for_tunnel() -> str | None:
    """Return what of an encrypted overlay this machine lacks, with the remedy; None if it lacks nothing."""
    path = system_path()
    lacking = {name: package for name, package in _TUNNEL_PROGRAMS.items() if shutil.which(name, path=path) is None}
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
