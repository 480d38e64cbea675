"""Try which devices between machines this machine's kernel has, in a namespace that ends with the attempt."""

import errno
import os
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError

from wanbed.testbed.kernel.namespace import anonymous_namespace, open_netlink
from wanbed.testbed.rack.keys import missing_for_tunnel
from wanbed.testbed.rack.machine_plan import MACVLAN, VXLAN, WIREGUARD


def lacking_overlays() -> dict[str, str]:
    """Return why a kind of device cannot be made here, with the remedy; kinds that can be made are not in it."""
    try:
        namespace = anonymous_namespace()
    except OSError as fault:
        reason = f"no network namespaces: {fault.strerror or fault}: run `ray start` as root"
        return dict.fromkeys((VXLAN, MACVLAN, WIREGUARD), reason)
    try:
        netlink = open_netlink(f"/proc/self/fd/{namespace}")
        try:
            netlink.link("add", ifname="card0", kind="veth", peer={"ifname": "card1"})
            card = netlink.link_lookup(ifname="card0")[0]
            wanted: dict[str, dict[str, Any]] = {
                VXLAN: {"vxlan_id": 1, "vxlan_link": card, "vxlan_port": 14789, "vxlan_learning": 0},
                MACVLAN: {"link": card, "macvlan_mode": "bridge"},
            }
            refusals = {kind: _refusal(netlink, kind, options) for kind, options in wanted.items()}
            # An encrypted overlay is a VXLAN inside a tunnel.
            refusals[WIREGUARD] = refusals[VXLAN] or missing_for_tunnel()
            return {kind: refusal for kind, refusal in refusals.items() if refusal is not None}
        finally:
            netlink.close()
    finally:
        os.close(namespace)


def _refusal(netlink: Any, kind: str, options: dict[str, Any]) -> str | None:
    try:
        netlink.link("add", ifname=f"{kind}0", kind=kind, **options)
    except NetlinkError as fault:
        if fault.code == errno.EOPNOTSUPP:
            return f"the kernel {os.uname().release} has no {kind} devices: modprobe {kind}"
        return f"no {kind} device: {os.strerror(fault.code) if fault.code else fault}"
    return None
