"""Look at what one machine offers to a rack, without changing it: overlays are tried in a namespace of their own."""

import errno
import os
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError

from wanbed.testbed.hosts.host_environment import HOST_PROGRAMS, missing_programs
from wanbed.testbed.kernel.namespace import anonymous_namespace, open_netlink
from wanbed.testbed.rack.machine.facts import read_machine_facts
from wanbed.testbed.rack.machine.wireguard_tunnel import missing_for_tunnel
from wanbed.testbed.rack.machine_plan import HEADER_BYTES, VXLAN, WIREGUARD
from wanbed.testbed.rights import hosts_allowed
from wanbed.testbed.substrate.probe import probe_kernel


def _lacking_overlays() -> dict[str, str]:
    """Return why an overlay cannot be made here, with the remedy; overlays that can be made are not in it."""
    try:
        namespace = anonymous_namespace()
    except OSError as fault:
        reason = f"no network namespaces: {fault.strerror or fault}: run `ray start` as root"
        return dict.fromkeys((VXLAN, WIREGUARD), reason)
    try:
        refusal = _vxlan_refusal(namespace)
    finally:
        os.close(namespace)
    # An encrypted overlay is a VXLAN inside a tunnel.
    refusals = {VXLAN: refusal, WIREGUARD: refusal or missing_for_tunnel()}
    return {overlay: reason for overlay, reason in refusals.items() if reason is not None}


def _vxlan_refusal(namespace: int) -> str | None:
    netlink = open_netlink(f"/proc/self/fd/{namespace}")
    try:
        netlink.link("add", ifname="card0", kind="veth", peer={"ifname": "card1"})
        card = netlink.link_lookup(ifname="card0")[0]
        options = {"vxlan_id": 1, "vxlan_link": card, "vxlan_port": 14789, "vxlan_learning": 0}
        try:
            netlink.link("add", ifname="vxlan0", kind=VXLAN, **options)
        except NetlinkError as fault:
            if fault.code == errno.EOPNOTSUPP:
                return f"the kernel {os.uname().release} has no {VXLAN} devices: modprobe {VXLAN}"
            return f"no {VXLAN} device: {os.strerror(fault.code) if fault.code else fault}"
        return None
    finally:
        netlink.close()


def survey_machine(address: str | None) -> dict[str, Any]:
    """Return the machine's facts, what it ``can``, and what is ``missing``, one line each, in plain JSON types.

    ``address`` is that of its card. Of what carries packets between machines, only VXLAN is missed: it is the default.
    """
    facts = read_machine_facts(address)
    lacking, lacking_programs = _lacking_overlays(), missing_programs()
    missing = [*facts.missing, *([lacking[VXLAN]] if VXLAN in lacking else [])]
    if facts.card is None:
        missing.append(f"no interface has the address {address}: give `ray start` --node-ip-address that of the card")
    can = {
        "root": os.geteuid() == 0,
        "hosts": hosts_allowed().directly is None,
        "netem": probe_kernel().available,
        **{kind: kind not in lacking for kind in HEADER_BYTES},
        **{program: program not in lacking_programs for program in HOST_PROGRAMS},
    }
    return {**facts.document(), "can": can, "missing": missing, "_lacking_overlays": lacking}
