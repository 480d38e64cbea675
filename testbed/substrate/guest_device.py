"""Choose the devices that connect the gateway guest to hosts: TAP devices, or veth pairs with raw sockets."""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

TAP_DEVICE = Path("/dev/net/tun")
_TUNGETFEATURES = 0x800454CF


@dataclass(frozen=True)
class GuestDevice:
    """The kind of device: TAP unless ``tap_refusal`` says why it cannot be opened."""

    tap_refusal: str | None

    @property
    def name(self) -> str:
        """The name in records."""
        return "tap" if self.tap_refusal is None else "raw veth"

    @property
    def text(self) -> str:
        """The devices, and why they are not TAP devices."""
        if self.tap_refusal is None:
            return "TAP devices"
        return f"veth pairs ({TAP_DEVICE}: {self.tap_refusal})"

    def card(self, number: int) -> str:
        """Return the guest's end of a host's link as a part of its kernel's command line."""
        transport = f"tap,ifname={host_end(number)}" if self.tap_refusal is None else f"raw,ifname={guest_end(number)}"
        return f"vec{number}:transport={transport}"


def host_end(number: int) -> str:
    """Return the name of the device that becomes a host's interface."""
    return f"tap{number}"


def guest_end(number: int) -> str:
    """Return the name of the other end of a veth pair, which the guest opens."""
    return f"uml{number}"


def guest_device() -> GuestDevice:
    """Open the TAP device: it may exist and still be refused, by its mode, a cgroup or for want of the driver."""
    try:
        descriptor = os.open(TAP_DEVICE, os.O_RDWR)
        try:
            # A container may have another device in its place.
            fcntl.ioctl(descriptor, _TUNGETFEATURES, bytearray(4))
        finally:
            os.close(descriptor)
    except OSError as fault:
        return GuestDevice(fault.strerror or str(fault))
    return GuestDevice(None)
