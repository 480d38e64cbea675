"""Try which overlays this machine can have, in a namespace that ends with the attempt."""

import errno
import os

from pyroute2.netlink.exceptions import NetlinkError

from wanbed.testbed.kernel.namespace import anonymous_namespace, open_netlink
from wanbed.testbed.rack.machine.keys import missing_for_tunnel
from wanbed.testbed.rack.machine_plan import VXLAN, WIREGUARD


def lacking_overlays() -> dict[str, str]:
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
