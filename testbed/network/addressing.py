"""Assign addresses to a testbed: one IPv4 subnet per datacenter, distinct between testbeds that are up at once.

A testbed in slot t owns 10.t.0.0/16. Datacenter d has 10.t.d.0/24: its gateway is .1 and its hosts follow from .2, so
that the last octet alone identifies the host. MAC addresses follow the same numbers, so that no link ever needs ARP.
"""

MAX_SLOTS = 250

HOST_SIDE, GATEWAY_SIDE = 1, 2
FIRST_HOST_OCTET = 2


def gateway_address(slot: int, datacenter: int) -> str:
    """Return the address of the gateway of datacenter number ``datacenter``."""
    return f"10.{slot}.{datacenter}.1"


def host_address(slot: int, datacenter: int, host: int) -> str:
    """Return the address of host number ``host`` of datacenter number ``datacenter``."""
    return f"10.{slot}.{datacenter}.{host + FIRST_HOST_OCTET}"


def subnet(slot: int, datacenter: int) -> str:
    """Return the /24 that holds a datacenter's gateway and hosts, without its prefix length."""
    return f"10.{slot}.{datacenter}.0"


def host_link_mac(slot: int, datacenter: int, host: int, side: int) -> str:
    """Return the MAC address of one side of the link between a host and its gateway; locally administered."""
    return f"02:{side:02x}:{slot:02x}:{datacenter:02x}:00:{host:02x}"


def wan_link_mac(slot: int, datacenter: int, peer: int) -> str:
    """Return the MAC address of the interface by which datacenter ``datacenter``'s gateway reaches that of ``peer``."""
    return f"02:03:{slot:02x}:{datacenter:02x}:{peer:02x}:00"
