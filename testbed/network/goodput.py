"""Compute the goodput of TCP on a link of a given rate.

A full frame at the qdisc is ``MTU + 14`` bytes (Ethernet header; preamble, checksum and gap are not counted), of which
``MTU - 52`` are payload (20 bytes IPv4, 20 TCP, 12 timestamps):

    goodput = rate x (MTU - 52) / (MTU + 14) = 0.9564 x rate at MTU 1500
"""

from wanbed.testbed.network.ethernet import ETHERNET_HEADER_BYTES, MTU_BYTES

TCP_OVERHEAD_BYTES = 20 + 20 + 12
UDP_OVERHEAD_BYTES = 20 + 8


def tcp_goodput_bps(rate_bps: float, mtu_bytes: int = MTU_BYTES) -> float:
    """Return the TCP goodput of a rate, by the formula in this module's docstring."""
    return rate_bps * (mtu_bytes - TCP_OVERHEAD_BYTES) / (mtu_bytes + ETHERNET_HEADER_BYTES)
