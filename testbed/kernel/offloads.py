"""Read an interface's offloads and its largest packets and super-packets."""

from collections.abc import Iterable
from typing import Any

from pyroute2.ethtool.ioctl import IoctlEthtool, NotSupportedError

from wanbed.testbed.kernel.namespace import inside, open_netlink

_SIZES = {"IFLA_MTU": "mtu_bytes", "IFLA_GSO_MAX_SIZE": "gso_max_bytes", "IFLA_GSO_MAX_SEGS": "gso_max_segs"}


def read_offloads(namespace: str, interfaces: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return each interface's sizes, and its offloads by ethtool's name, on or off.

    A device that reports no offloads has only its sizes. Raise KeyError for an unknown interface.
    """
    netlink = open_netlink(namespace)
    try:
        links = {link.get_attr("IFLA_IFNAME"): link for link in netlink.get_links()}
    finally:
        netlink.close()
    with inside(namespace):
        return {
            name: {**{ours: links[name].get_attr(theirs) for theirs, ours in _SIZES.items()}, **_switches(name)}
            for name in interfaces
        }


def _switches(interface: str) -> dict[str, bool]:
    device = IoctlEthtool(interface)
    try:
        return dict(device.get_offload_flags())
    except NotSupportedError:
        return {}
    finally:
        device.close()
