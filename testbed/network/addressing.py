"""Assign addresses to a testbed: one IPv4 subnet per datacenter, different for testbeds that are up at the same time.

A testbed in slot t owns 10.t.0.0/16. Datacenter d has 10.t.d.0/24: its gateway is .1 and its hosts start at .2, so
that the last octet identifies the host. MAC addresses are derived from the same numbers, so that no link needs ARP.
"""

MAX_SLOTS = 250

LOOPBACK_SUBNETS = 125
"""The parts of the loopback for testbeds without namespaces: number n has 127.2n.0.0/16 and the subnet after it."""

HOST_SIDE, GATEWAY_SIDE = 1, 2
FIRST_HOST_OCTET = 2


def gateway_address(slot: int, datacenter: int) -> str:
    """Return the address of the gateway of datacenter number ``datacenter``."""
    return f"10.{slot}.{datacenter}.1"


def host_address(slot: int, datacenter: int, host: int) -> str:
    """Return the address of host number ``host`` of datacenter number ``datacenter``."""
    return f"10.{slot}.{datacenter}.{host + FIRST_HOST_OCTET}"


def subnet(slot: int, datacenter: int) -> str:
    """Return the /24 subnet of a datacenter's gateway and hosts, without the prefix length."""
    return f"10.{slot}.{datacenter}.0"


def host_link_mac(slot: int, datacenter: int, host: int, side: int) -> str:
    """Return the locally administered MAC address of one side of the link between a host and its gateway."""
    return f"02:{side:02x}:{slot:02x}:{datacenter:02x}:00:{host:02x}"


def wan_link_mac(slot: int, datacenter: int, peer: int) -> str:
    """Return the MAC address of the interface of ``datacenter``'s gateway towards the gateway of ``peer``."""
    return f"02:03:{slot:02x}:{datacenter:02x}:{peer:02x}:00"


def machine_link_mac(rack: int, device: int) -> str:
    """Return the MAC address of device number ``device`` of a rack, on which its machines reach each other.

    ``rack`` is a number of 24 bits that other racks on the same switch do not have.
    """
    return ":".join(f"{octet:02x}" for octet in (0x02, *rack.to_bytes(3), *device.to_bytes(2)))


def tunnel_address(machine: int) -> str:
    """Return the address of machine number ``machine`` of a rack in an encrypted tunnel, from 169.254.0.0/16.

    These are never forwarded (RFC 3927), so that no network beyond the gateways' namespaces can have them as a route.
    """
    high, low = divmod(machine + 1, 256)
    return f"169.254.{high}.{low}"


def loopback_address(subnet_number: int, datacenter: int, host: int, *, reached: bool) -> str:
    """Return a host's address on the machine's loopback: its programs' own, or the one at which others reach it."""
    return f"127.{2 * subnet_number + reached}.{datacenter}.{host + FIRST_HOST_OCTET}"


def loopback_subnets(subnet_number: int) -> tuple[str, str]:
    """Return how the addresses of a part of the loopback begin."""
    return f"127.{2 * subnet_number}.", f"127.{2 * subnet_number + 1}."


def loopback_lock_address(subnet_number: int) -> str:
    """Return the address of a part of the loopback that no host has, and where its owner listens."""
    return f"127.{2 * subnet_number}.255.254"


HOST_INTERFACE = "eth0"
