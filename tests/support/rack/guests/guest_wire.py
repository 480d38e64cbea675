"""A network for guest machines: a bridge in a network namespace of its own, on which each has its card.

As on a real wire, no packet is larger than the MTU: this machine's kernel would pass on 64 KiB in one piece.
"""

import subprocess
import time
from typing import Self

from tests.support.rack.held_namespace import HeldNamespace
from tests.support.until import until_within
from wanbed.testbed.kernel.gateway_programming import link_index

BRIDGE = "wire0"
PREFIX = "192.0.2"
"""Of the cards' addresses, a /24 for documentation, which no emulated host has."""
OUTSIDE_ADDRESS = f"{PREFIX}.1"
"""The address of programs outside the guests that run in the wire's namespace."""

_TAP_DEADLINE_S = 20.0


class GuestWire(HeldNamespace):
    """A bridge, for the duration of a ``with`` block. Its namespace ends with this process and what it started there.

    Programs outside the guests reach these from inside the namespace only, ``command`` puts them there.
    """

    def __enter__(self) -> Self:
        super().__enter__()
        netlink = self.open_netlink()
        try:
            netlink.link("set", index=link_index(netlink, "lo"), state="up")
            netlink.link("add", ifname=BRIDGE, kind="bridge", br_stp_state=0)
            index = link_index(netlink, BRIDGE)
            netlink.addr("add", index=index, address=OUTSIDE_ADDRESS, prefixlen=24)
            netlink.link("set", index=index, state="up")
        finally:
            netlink.close()
        return self

    def command(self, argv: list[str]) -> list[str]:
        """Return a command line that runs a program outside the guests in the namespace."""
        return ["nsenter", f"--net={self.namespace}", "--", *argv]

    def plug_in(self, tap: str, process: subprocess.Popen[bytes], mtu_bytes: int) -> None:
        """Put a guest's TAP device on the bridge as soon as the guest has opened it."""
        netlink = self.open_netlink()
        try:
            deadline = time.monotonic() + _TAP_DEADLINE_S
            while not netlink.link_lookup(ifname=tap):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the guest of {tap} did not open its card")
                time.sleep(0.02)
            index, bridge = link_index(netlink, tap), link_index(netlink, BRIDGE)
            netlink.link("set", index=index, mtu=mtu_bytes, gso_max_segs=1, master=bridge)
            netlink.link("set", index=index, state="up")
        finally:
            netlink.close()

    def await_unplugged(self, tap: str) -> None:
        """Wait until a guest's TAP device has gone with it, so that another guest may open one of its name."""
        netlink = self.open_netlink()
        try:
            until_within(_TAP_DEADLINE_S, lambda: not netlink.link_lookup(ifname=tap))
        finally:
            netlink.close()
