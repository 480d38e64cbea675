"""Probe which substrates work for this process, or inside a user namespace if hosts can be made only there.

As a program: print the offers of the substrates with netem as JSON.
"""

import errno
import json
import os
import shutil
import socket
import subprocess
from dataclasses import asdict
from pathlib import Path

from pyroute2.netlink.exceptions import NetlinkError

from wanbed.ground.errors import InputError, MissingError
from wanbed.module_process import module_command
from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.kernel.killed import check_not_killed
from wanbed.testbed.kernel.namespace import anonymous_namespace, open_netlink
from wanbed.testbed.kernel.qdiscs import netem_options
from wanbed.testbed.kernel.user_mode_linux import GuestMemoryError
from wanbed.testbed.network.gateway_plan import NetemPlan
from wanbed.testbed.rights import ENTER, HostsAllowed, hosts_allowed
from wanbed.testbed.substrate.guest_device import guest_device
from wanbed.testbed.substrate.guest_kernel import GUEST_PROGRAM, MODULES, MODULES_ROOT, gateway_guest_memory
from wanbed.testbed.substrate.offer import GUEST, KERNEL, RELAY, SUBSTRATES, Offer


def probe_kernel() -> Offer:
    """Try to set a netem qdisc on a veth pair in a temporary network namespace."""
    if (refusal := hosts_refused(KERNEL)) is not None:
        return refusal
    try:
        namespace = anonymous_namespace()
    except OSError as fault:
        return Offer(
            KERNEL,
            False,
            fault.strerror or str(fault),
            "run where network namespaces may be made; a container needs the capabilities SYS_ADMIN and NET_ADMIN",
        )
    try:
        netlink = open_netlink(f"/proc/self/fd/{namespace}")
        try:
            netlink.link("add", ifname="probe0", kind="veth", peer={"ifname": "probe1"})
            index = netlink.link_lookup(ifname="probe0")[0]
            options = netem_options(NetemPlan(delay_ns=1_000_000, limit_packets=1000))
            netlink.tc("add", "netem", index, 0x10000, options=options)
        finally:
            netlink.close()
    except NetlinkError as fault:
        if fault.code == errno.ENOENT:
            release = os.uname().release
            return Offer(
                KERNEL,
                False,
                f"the kernel {release} has no sch_netem",
                f"modprobe sch_netem, or a kernel package that has it (Debian: linux-image-{os.uname().machine})",
            )
        return Offer(KERNEL, False, f"netem on a veth: {fault}", "a kernel with veth and sch_netem")
    finally:
        os.close(namespace)
    return Offer(KERNEL, True, f"the kernel {os.uname().release} accepted a netem qdisc")


def probe_guest() -> Offer:
    """Check for the gateway guest's kernel, modules and memory, and for what connects it to hosts. Do not boot it."""
    install = "apt-get install user-mode-linux kmod"
    if (refusal := hosts_refused(GUEST)) is not None:
        return refusal
    if shutil.which(GUEST_PROGRAM) is None:
        return Offer(GUEST, False, f"{GUEST_PROGRAM} is not on the PATH", install)
    releases = [path.name for path in MODULES_ROOT.glob("*") if (path / "kernel").is_dir()]
    lacking = [
        module for module in MODULES if not any((MODULES_ROOT / r / "kernel" / module).exists() for r in releases)
    ]
    if lacking:
        return Offer(
            GUEST, False, f"{MODULES_ROOT} lacks {', '.join(Path(module).name for module in lacking)}", install
        )
    try:
        gateway_guest_memory()
    except GuestMemoryError as lack:
        return Offer(GUEST, False, lack.reason, lack.remedy)
    guest = f"User-Mode Linux {', '.join(releases)} with netem, beside the kernel {os.uname().release}"
    return Offer(GUEST, True, f"{guest}, over {guest_device().text}")


def hosts_refused(name: str) -> Offer | None:
    """Return the offer of a substrate where this process may not make hosts, None where it may."""
    allowed = None if in_virtual_time() else hosts_allowed()
    if allowed is None or allowed.directly is None:
        return None
    return Offer(name, False, f"no namespaces for hosts: {allowed.reason}", allowed.remedy)


def probe_relay() -> Offer:
    """Check that this user may listen on any address of the loopback, which is all that a relay needs."""
    try:
        with socket.create_server(("127.251.0.1", 0)):
            pass
    except OSError as fault:
        return Offer(RELAY, False, f"127.251.0.1: {fault.strerror or fault}", "set the loopback interface up")
    return Offer(RELAY, True, "TCP is modelled: plain processes on 127/8 and one relay, no namespaces, no netem")


def choose_substrate(requested: str = "auto") -> Offer:
    """Return the requested substrate; for ``auto`` the machine's own kernel if it has netem, else the gateway guest.

    The relay is never chosen by itself: its figures are a model's, and compare only with one another.

    Raise MissingError if it does not work on this machine, InputError for an unknown name.
    """
    probes = {KERNEL: probe_kernel, GUEST: probe_guest, RELAY: probe_relay}
    if requested != "auto":
        if requested not in probes:
            raise InputError(
                f"--substrate: {requested!r} is not a substrate, give auto, {', '.join(SUBSTRATES)} or {RELAY}"
            )
        offer = probes[requested]()
        if not offer.available:
            what = "no relay" if requested == RELAY else f"no netem in the {requested} substrate"
            raise MissingError(f"{what}: {offer.reason} ({offer.install})")
        return offer
    kernel = probe_kernel()
    if kernel.available:
        return kernel
    guest = probe_guest()
    if guest.available:
        return Offer(GUEST, True, f"{kernel.reason}, so {guest.reason}")
    remedy = guest.install if guest.install == kernel.install else f"{guest.install}; or {kernel.install}"
    reason = guest.reason if guest.reason == kernel.reason else f"{kernel.reason}; {guest.reason}"
    without = f"; or `wanbed run --substrate {RELAY}`, where TCP is modelled" if probe_relay().available else ""
    raise MissingError(f"no netem anywhere: {reason} ({remedy}{without})")


_PROBES = (probe_kernel, probe_guest)
_LIMIT_S = 60.0


def machine_offers(allowed: HostsAllowed) -> tuple[Offer, ...]:
    """Return the offers of the substrates that ``wanbed run`` would have to choose from, best first."""
    if not allowed.by_entering:
        return _offers()
    command = [*ENTER, *module_command("wanbed.testbed.substrate.probe")]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_LIMIT_S)
    except subprocess.CalledProcessError as failed:
        check_not_killed(failed)
        return _offers()
    except (OSError, subprocess.SubprocessError):
        return _offers()
    return tuple(Offer(**each) for each in json.loads(asked.stdout))


def _offers() -> tuple[Offer, ...]:
    return tuple(probe() for probe in _PROBES)


if __name__ == "__main__":
    print(json.dumps([asdict(offer) for offer in _offers()]))
